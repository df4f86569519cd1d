SELECT body FROM repositories WHERE space = $1 ORDER BY id
