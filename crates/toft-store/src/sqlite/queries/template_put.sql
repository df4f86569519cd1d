INSERT INTO templates (name, version, body)
VALUES (?1, ?2, ?3)
ON CONFLICT (name, version) DO UPDATE SET
    body = excluded.body
