-- With each target as a task, where it exists.
SELECT d.task, d.target, d.kind, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM dependencies d
LEFT JOIN tasks t ON t.space = d.space AND t.id = d.target
LEFT JOIN task_states s ON s.space = d.space AND s.id = d.target
WHERE d.space = $1 AND d.task = $2
ORDER BY d.target, d.kind
