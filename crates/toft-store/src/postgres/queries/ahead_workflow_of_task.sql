SELECT body FROM workflows WHERE space = $1 AND id = (SELECT workflow FROM tasks WHERE space = $1 AND id = $2)
