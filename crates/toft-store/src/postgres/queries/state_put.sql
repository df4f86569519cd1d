INSERT INTO states (space, task, key, value)
VALUES ($1, $2, $3, $4)
ON CONFLICT (space, task, key) DO UPDATE SET
    value = excluded.value
