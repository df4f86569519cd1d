INSERT INTO agents (id, name, body)
VALUES (?1, ?2, ?3)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name,
    body = excluded.body
