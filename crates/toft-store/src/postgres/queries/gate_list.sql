SELECT body FROM gates WHERE space = $1 AND task = $2 ORDER BY created, id
