INSERT INTO dependencies (space, task, target, kind)
VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
