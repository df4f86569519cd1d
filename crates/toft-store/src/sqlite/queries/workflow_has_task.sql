SELECT EXISTS (SELECT 1 FROM task_states WHERE workflow = ?1 AND status = ?2)
