SELECT body FROM gates WHERE space = $1 AND id = $2
