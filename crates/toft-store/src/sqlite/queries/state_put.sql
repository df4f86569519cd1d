INSERT INTO states (task, key, value)
VALUES (?1, ?2, ?3)
ON CONFLICT (task, key) DO UPDATE SET
    value = excluded.value
