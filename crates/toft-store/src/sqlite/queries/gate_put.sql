INSERT INTO gates (id, task, repository, worktree, created, unopened, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO UPDATE SET
    unopened = excluded.unopened,
    body = excluded.body
