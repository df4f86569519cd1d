UPDATE task_states SET lane = NULL, rank = NULL WHERE id = ?1 AND lane IS NOT NULL
