SELECT t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM tasks t
JOIN task_states s ON s.space = t.space AND s.id = t.id
WHERE t.space = $1
