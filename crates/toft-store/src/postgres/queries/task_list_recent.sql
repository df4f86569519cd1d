SELECT t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM tasks t
JOIN task_states s ON s.space = t.space AND s.id = t.id
WHERE t.space = $1 AND ($2 IS NULL OR t.repository = $2) AND ($3 IS NULL OR t.worktree = $3)
    AND ($4 = '' OR strpos($4, ' ' || s.status || ' ') > 0)
ORDER BY t.created DESC, t.id DESC
LIMIT $5
