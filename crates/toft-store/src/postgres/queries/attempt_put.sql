INSERT INTO attempts (space, task, fence, lease, agent, repository, worktree, started, ended, result, reason, cost, report)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (space, task, fence) DO UPDATE SET
    ended = excluded.ended,
    result = excluded.result,
    reason = excluded.reason,
    cost = excluded.cost,
    report = excluded.report
