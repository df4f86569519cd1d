INSERT INTO worktrees (repository, name, body)
VALUES (?1, ?2, ?3)
ON CONFLICT (repository, name) DO UPDATE SET
    body = excluded.body
