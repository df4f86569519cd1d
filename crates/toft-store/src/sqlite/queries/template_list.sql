SELECT body FROM templates t
WHERE version = (SELECT max(version) FROM templates n WHERE n.name = t.name)
ORDER BY name
