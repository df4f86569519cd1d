SELECT task, target, kind FROM dependencies WHERE space = $1 AND target = $2 ORDER BY task, kind
