SELECT body FROM landings
WHERE (?1 IS NULL OR repository = ?1) AND (live = 1 OR live = ?2)
ORDER BY created DESC, id DESC
LIMIT ?3
