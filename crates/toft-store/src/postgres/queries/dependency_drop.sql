DELETE FROM dependencies WHERE space = $1 AND task = $2 AND target = $3 AND kind = $4
