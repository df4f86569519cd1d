INSERT INTO gates (space, id, task, repository, worktree, created, unopened, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (space, id) DO UPDATE SET
    unopened = excluded.unopened,
    body = excluded.body
