SELECT seq, at, actor, repository, worktree, entity, verb, detail, op, part
FROM events
WHERE space = $1 AND entity = $6 AND seq > $2 AND ($3 IS NULL OR repository = $3) AND ($4 IS NULL OR worktree = $4)
ORDER BY seq
LIMIT $5
