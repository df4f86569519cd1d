SELECT body FROM landings
WHERE space = $1 AND ($2 IS NULL OR repository = $2) AND (live = 1 OR live = $3)
ORDER BY created DESC, id DESC
LIMIT $4
