SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder
FROM leases
WHERE epoch <> ?1 OR check_at <= ?2 OR (holder > ?4 AND holder < ?5)
ORDER BY check_at, task
LIMIT ?3
