UPDATE task_states SET lane = ?2, rank = ?3 WHERE id = ?1
