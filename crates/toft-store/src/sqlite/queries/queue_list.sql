SELECT q.lane, q.rank, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM queue q
JOIN tasks t ON t.id = q.task
JOIN task_states s ON s.id = q.task
WHERE q.lane = ?1 AND q.rank > ?2 AND q.rank < ?3
ORDER BY q.rank
LIMIT ?4
