SELECT recipient, rank, message, state, read_at FROM deliveries WHERE space = $1
