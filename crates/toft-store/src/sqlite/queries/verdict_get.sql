SELECT body FROM verdicts WHERE key = ?1
