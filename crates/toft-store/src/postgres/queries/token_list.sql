SELECT body FROM tokens WHERE space = $1 ORDER BY name, digest
