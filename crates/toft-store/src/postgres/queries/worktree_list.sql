SELECT body FROM worktrees WHERE space = $1 AND repository = $2 ORDER BY name
