-- Workflows with a failed task are few, and have an index of their own.
SELECT t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM progress p
JOIN tasks t ON t.space = p.space AND t.workflow = p.workflow
JOIN task_states s ON s.space = t.space AND s.id = t.id
WHERE p.space = $1 AND p.counts[6] > 0 AND s.status = 'failed'
    AND ($2 IS NULL OR t.repository = $2) AND ($3 IS NULL OR t.worktree = $3)
ORDER BY t.created DESC, t.id DESC
LIMIT $4
