-- Of tasks that are over, but the newest of each.
DELETE FROM checkpoints
WHERE (task, seq) IN (
    SELECT c.task, c.seq
    FROM checkpoints c
    JOIN task_states s ON s.id = c.task
    WHERE s.status IN ('done', 'skipped', 'cancelled')
        AND c.body ->> 'created' < ?1
        AND c.seq < (SELECT max(n.seq) FROM checkpoints n WHERE n.task = c.task)
    LIMIT ?2
)
