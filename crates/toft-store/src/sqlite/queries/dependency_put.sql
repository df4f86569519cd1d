INSERT INTO dependencies (task, target, kind)
VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING
