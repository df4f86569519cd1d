SELECT body FROM agents WHERE space = $1 AND id = $2
