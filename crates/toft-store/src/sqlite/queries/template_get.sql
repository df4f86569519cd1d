SELECT body FROM templates WHERE name = ?1 AND version = ?2
