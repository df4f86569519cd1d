-- The partial index holds only failed tasks, so asking costs as many rows as need a person.
SELECT t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM task_states s INDEXED BY task_states_failed
JOIN tasks t ON t.id = s.id
WHERE s.status = 'failed' AND (?1 IS NULL OR t.repository = ?1) AND (?2 IS NULL OR t.worktree = ?2)
ORDER BY t.created DESC, t.id DESC
LIMIT ?3
