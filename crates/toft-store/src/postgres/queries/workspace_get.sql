SELECT body FROM workspaces WHERE space = $1 AND id = $2
