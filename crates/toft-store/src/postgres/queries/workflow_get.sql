SELECT body FROM workflows WHERE space = $1 AND id = $2
