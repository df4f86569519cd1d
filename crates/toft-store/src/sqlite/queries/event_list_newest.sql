SELECT seq, at, actor, repository, worktree, entity, verb, detail, op, part
FROM events
WHERE seq > ?1 AND (?2 IS NULL OR repository = ?2) AND (?3 IS NULL OR worktree = ?3)
ORDER BY seq DESC
LIMIT ?4
