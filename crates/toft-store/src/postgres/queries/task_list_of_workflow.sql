SELECT t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM tasks t
JOIN task_states s ON s.space = t.space AND s.id = t.id
WHERE t.space = $1 AND t.workflow = $2
    AND ($3 IS NULL OR t.repository = $3) AND ($4 IS NULL OR t.worktree = $4)
    AND ($5 = '' OR strpos($5, ' ' || s.status || ' ') > 0)
ORDER BY t.ord, t.id
LIMIT $6
