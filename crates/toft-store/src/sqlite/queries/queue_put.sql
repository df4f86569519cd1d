-- The workflow (?4) is there already.
UPDATE task_states SET lane = ?2, rank = ?3, worktree = ?5, labels = ?6 WHERE id = ?1
