INSERT INTO deliveries (space, recipient, rank, message, state)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (space, recipient, rank) DO UPDATE SET
    message = excluded.message,
    state = excluded.state
