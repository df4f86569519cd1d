INSERT INTO tasks (space, id, workflow, ord, repository, worktree, created, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (space, id) DO UPDATE SET
    workflow = excluded.workflow,
    ord = excluded.ord,
    repository = excluded.repository,
    worktree = excluded.worktree,
    created = excluded.created,
    body = excluded.body
