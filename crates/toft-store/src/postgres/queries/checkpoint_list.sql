SELECT body FROM checkpoints WHERE space = $1 AND task = $2 ORDER BY seq DESC LIMIT $3
