SELECT body FROM templates WHERE space = $1 AND name = $2 AND version = $3
