SELECT body FROM templates WHERE name = ?1 ORDER BY version DESC LIMIT 1
