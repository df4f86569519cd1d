SELECT body FROM checkpoints WHERE task = ?1 ORDER BY seq DESC LIMIT ?2
