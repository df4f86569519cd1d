SELECT d.task, d.target, d.kind, s.status
FROM dependencies d
LEFT JOIN task_states s ON s.id = d.target
WHERE d.task = ?1
ORDER BY d.target, d.kind
