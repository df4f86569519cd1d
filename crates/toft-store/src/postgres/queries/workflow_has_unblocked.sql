-- Asked only when a task of the workflow has failed and nobody works on the rest. As many rows as are needed
-- to tell, though some may have changed in the transaction that asks.
SELECT t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM tasks t
JOIN task_states s ON s.space = t.space AND s.id = t.id
WHERE t.space = $1 AND t.workflow = $2 AND s.status = 'pending' AND s.open_blockers = 0
LIMIT $3
