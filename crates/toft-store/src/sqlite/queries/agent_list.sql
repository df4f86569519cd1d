SELECT body FROM agents ORDER BY name
