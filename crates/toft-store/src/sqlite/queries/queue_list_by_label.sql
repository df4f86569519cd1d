SELECT s.lane, s.rank, s.worktree, s.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated
FROM queue_labels q
CROSS JOIN task_states s ON s.id = q.task
CROSS JOIN tasks t ON t.id = q.task
WHERE q.label = ?5 AND q.lane = ?1 AND q.rank > ?2 AND q.rank < ?3
ORDER BY q.rank
LIMIT ?4
