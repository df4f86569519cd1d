SELECT task, fence, lease, agent, repository, worktree, started, ended, result, reason, cost
FROM attempts
WHERE task = ?1
ORDER BY fence
