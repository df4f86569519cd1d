DELETE FROM attempts
WHERE space = $1 AND (task, fence) IN (
    SELECT a.task, a.fence
    FROM attempts a
    JOIN task_states s ON s.space = a.space AND s.id = a.task
    WHERE a.space = $1 AND a.ended < $2 AND s.status IN ('done', 'skipped', 'cancelled')
    LIMIT $3
)
