INSERT INTO deliveries (recipient, rank, message, state, read_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (recipient, rank) DO UPDATE SET
    message = excluded.message,
    state = excluded.state,
    read_at = excluded.read_at
