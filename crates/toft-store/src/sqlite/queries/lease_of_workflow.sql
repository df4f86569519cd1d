SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder, seen
FROM leases
WHERE workflow = ?1
ORDER BY task
