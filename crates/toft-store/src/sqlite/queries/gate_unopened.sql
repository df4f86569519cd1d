SELECT body
FROM gates
WHERE unopened = 1 AND (?1 IS NULL OR repository = ?1) AND (?2 IS NULL OR worktree = ?2)
ORDER BY created, id
LIMIT ?3
