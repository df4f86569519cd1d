SELECT body FROM workflows WHERE id = ?1
