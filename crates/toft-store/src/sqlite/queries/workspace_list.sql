SELECT body, id, repository, created FROM workspaces
WHERE (?1 IS NULL OR repository = ?1) AND (live = 1 OR live = ?2)
ORDER BY created DESC, id DESC
LIMIT ?3
