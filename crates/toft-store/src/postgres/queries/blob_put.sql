INSERT INTO blobs (space, id, body)
VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING
