SELECT body FROM templates t
WHERE space = $1 AND version = (SELECT max(version) FROM templates n WHERE n.space = $1 AND n.name = t.name)
ORDER BY name
