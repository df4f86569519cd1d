SELECT id, lane, rank FROM task_states WHERE id = ?1 AND lane IS NOT NULL
