INSERT INTO deliveries (space, recipient, rank, message, state, read_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (space, recipient, rank) DO UPDATE SET
    message = excluded.message,
    state = excluded.state,
    read_at = excluded.read_at
