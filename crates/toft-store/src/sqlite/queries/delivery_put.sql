INSERT INTO deliveries (recipient, rank, message, state)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (recipient, rank) DO UPDATE SET
    message = excluded.message,
    state = excluded.state
