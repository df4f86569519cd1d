SELECT body FROM landings WHERE space = $1 AND id = $2
