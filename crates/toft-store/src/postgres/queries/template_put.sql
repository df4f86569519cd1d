INSERT INTO templates (space, name, version, body)
VALUES ($1, $2, $3, $4)
ON CONFLICT (space, name, version) DO UPDATE SET
    body = excluded.body
