SELECT workflow, counts::text AS counts
FROM progress
WHERE space = $1 AND workflow = (SELECT workflow FROM tasks WHERE space = $1 AND id = $2)
ORDER BY n DESC
LIMIT 1
