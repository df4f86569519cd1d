INSERT INTO tokens (digest, name, body)
VALUES (?1, ?2, ?3)
ON CONFLICT (digest) DO UPDATE SET
    body = excluded.body
