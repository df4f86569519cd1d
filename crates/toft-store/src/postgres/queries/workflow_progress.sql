SELECT workflow, counts::text AS counts FROM progress WHERE space = $1 AND workflow = $2 ORDER BY n DESC LIMIT 1
