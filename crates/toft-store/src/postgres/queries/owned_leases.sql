SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder, seen
FROM leases
WHERE space = $1
