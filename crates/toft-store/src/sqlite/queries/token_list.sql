SELECT body FROM tokens ORDER BY name, digest
