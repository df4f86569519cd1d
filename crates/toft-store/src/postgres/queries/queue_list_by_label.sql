SELECT q.lane, q.rank, q.worktree, q.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM queue_labels l
JOIN queue q ON q.space = l.space AND q.task = l.task
JOIN tasks t ON t.space = l.space AND t.id = l.task
JOIN task_states s ON s.space = l.space AND s.id = l.task
WHERE l.space = $1 AND l.label = $6 AND l.lane = $2 AND l.rank > $3 AND l.rank < $4
    AND l.rank >= coalesce((SELECT f.rank FROM queue_floors f WHERE f.space = $1 AND f.lane = $2 ORDER BY f.n DESC LIMIT 1), '')
ORDER BY l.rank
LIMIT $5
