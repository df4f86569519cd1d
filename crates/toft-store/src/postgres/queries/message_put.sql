INSERT INTO messages (space, id, body)
VALUES ($1, $2, $3)
ON CONFLICT (space, id) DO UPDATE SET
    body = excluded.body
