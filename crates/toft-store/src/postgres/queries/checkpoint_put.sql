INSERT INTO checkpoints (space, task, seq, body)
VALUES ($1, $2, $3, $4)
