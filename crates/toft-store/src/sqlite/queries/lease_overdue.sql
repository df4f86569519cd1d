SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder, seen
FROM leases
WHERE check_at <= ?1 OR (holder > ?3 AND holder < ?4)
ORDER BY check_at, task
LIMIT ?2
