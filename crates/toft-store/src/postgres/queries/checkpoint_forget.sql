-- Of tasks that are over, but the newest of each.
DELETE FROM checkpoints
WHERE space = $1 AND (task, seq) IN (
    SELECT c.task, c.seq
    FROM checkpoints c
    JOIN task_states s ON s.space = c.space AND s.id = c.task
    WHERE c.space = $1
        AND s.status IN ('done', 'skipped', 'cancelled')
        AND c.body::json ->> 'created' < $2
        AND c.seq < (SELECT max(n.seq) FROM checkpoints n WHERE n.space = $1 AND n.task = c.task)
    LIMIT $3
)
