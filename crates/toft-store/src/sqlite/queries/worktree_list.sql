SELECT body FROM worktrees WHERE repository = ?1 ORDER BY name
