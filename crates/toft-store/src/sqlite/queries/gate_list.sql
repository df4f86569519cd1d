SELECT body FROM gates WHERE task = ?1 ORDER BY created, id
