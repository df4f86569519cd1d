SELECT id, lane, rank, workflow, worktree, labels FROM task_states WHERE id = ?1 AND lane IS NOT NULL
