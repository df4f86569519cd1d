SELECT s.lane, s.rank, s.worktree, s.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM task_states s INDEXED BY task_states_queue_by_worktree
JOIN tasks t ON t.id = s.id
WHERE s.worktree = ?5 AND s.worktree <> 'main' AND s.lane = ?1 AND s.rank > ?2 AND s.rank < ?3
ORDER BY s.rank
LIMIT ?4
