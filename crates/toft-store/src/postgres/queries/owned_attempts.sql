SELECT task, fence, lease, agent, repository, worktree, started, ended, result, reason, cost, report
FROM attempts
WHERE space = $1
