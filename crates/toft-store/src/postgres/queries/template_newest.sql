SELECT body FROM templates WHERE space = $1 AND name = $2 ORDER BY version DESC LIMIT 1
