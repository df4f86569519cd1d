INSERT INTO landings (id, repository, created, live, body)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO UPDATE SET
    live = excluded.live,
    body = excluded.body
