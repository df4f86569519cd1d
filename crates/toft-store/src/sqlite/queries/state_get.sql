SELECT value FROM states WHERE task = ?1 AND key = ?2
