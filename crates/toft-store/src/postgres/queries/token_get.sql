SELECT body FROM tokens WHERE space = $1 AND digest = $2
