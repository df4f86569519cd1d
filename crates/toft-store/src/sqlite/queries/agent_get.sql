SELECT body FROM agents WHERE id = ?1
