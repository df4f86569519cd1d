SELECT body FROM agents WHERE space = $1 ORDER BY name
