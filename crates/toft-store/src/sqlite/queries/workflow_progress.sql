SELECT status, count(*) FROM task_states WHERE workflow = ?1 GROUP BY status
