DELETE FROM dependencies WHERE task = ?1 AND target = ?2 AND kind = ?3
