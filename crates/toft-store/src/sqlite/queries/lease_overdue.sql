SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder FROM leases WHERE epoch = ?1 AND check_at <= ?2
UNION ALL
SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder FROM leases WHERE epoch < ?1
UNION ALL
SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder FROM leases WHERE epoch > ?1
ORDER BY check_at, task
LIMIT ?3
