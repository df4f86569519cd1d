SELECT r.*
FROM (
    SELECT q.task, q.rank
    FROM queue q
    WHERE q.space = $1 AND q.workflow || ' ' || q.lane = $6 || ' ' || $2 AND q.rank > $3 AND q.rank < $4
        AND q.rank >= coalesce((SELECT f.rank FROM queue_floors f WHERE f.space = $1 AND f.lane = $2 ORDER BY f.n DESC LIMIT 1), '')
    ORDER BY q.rank
    LIMIT $5
) c
CROSS JOIN LATERAL (
    SELECT q.lane, q.rank, q.worktree AS queue_worktree, q.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
    FROM queue q
    JOIN tasks t ON t.space = q.space AND t.id = q.task
    JOIN task_states s ON s.space = q.space AND s.id = q.task
    WHERE q.space = $1 AND q.task = c.task
    OFFSET 0
) r
ORDER BY c.rank
