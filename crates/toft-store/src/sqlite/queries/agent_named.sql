SELECT body FROM agents WHERE name = ?1
