SELECT body FROM workspaces WHERE id = ?1
