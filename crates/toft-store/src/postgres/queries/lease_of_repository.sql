SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder, seen
FROM leases
WHERE space = $1 AND ($2 IS NULL OR repository = $2)
ORDER BY task
