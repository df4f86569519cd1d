DELETE FROM attempts
WHERE (task, fence) IN (
    SELECT a.task, a.fence
    FROM attempts a
    JOIN task_states s ON s.id = a.task
    WHERE a.ended < ?1 AND s.status IN ('done', 'skipped', 'cancelled')
    LIMIT ?2
)
