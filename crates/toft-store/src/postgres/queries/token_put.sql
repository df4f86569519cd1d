INSERT INTO tokens (space, digest, name, body)
VALUES ($1, $2, $3, $4)
ON CONFLICT (space, digest) DO UPDATE SET
    body = excluded.body
