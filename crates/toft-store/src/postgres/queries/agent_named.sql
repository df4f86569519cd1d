SELECT body FROM agents WHERE space = $1 AND name = $2
