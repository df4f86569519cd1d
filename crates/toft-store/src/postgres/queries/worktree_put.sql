INSERT INTO worktrees (space, repository, name, body)
VALUES ($1, $2, $3, $4)
ON CONFLICT (space, repository, name) DO UPDATE SET
    body = excluded.body
