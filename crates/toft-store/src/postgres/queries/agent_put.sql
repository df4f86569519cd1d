INSERT INTO agents (space, id, name, body)
VALUES ($1, $2, $3, $4)
ON CONFLICT (space, id) DO UPDATE SET
    name = excluded.name,
    body = excluded.body
