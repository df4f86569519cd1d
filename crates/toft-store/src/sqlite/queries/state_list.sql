SELECT key, value FROM states WHERE task = ?1 ORDER BY key
