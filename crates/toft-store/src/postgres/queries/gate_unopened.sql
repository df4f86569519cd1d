SELECT body
FROM gates
WHERE space = $1 AND unopened = 1 AND ($2 IS NULL OR repository = $2) AND ($3 IS NULL OR worktree = $3)
ORDER BY created, id
LIMIT $4
