INSERT INTO checkpoints (task, seq, body)
VALUES (?1, ?2, ?3)
