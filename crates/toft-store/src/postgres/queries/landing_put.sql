INSERT INTO landings (space, id, repository, created, live, body)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (space, id) DO UPDATE SET
    live = excluded.live,
    body = excluded.body
