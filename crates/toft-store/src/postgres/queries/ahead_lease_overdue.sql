-- lease_overdue at this moment.
SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder, seen
FROM leases
WHERE space = $1 AND check_at <= (extract(epoch FROM transaction_timestamp()) * 1000)::bigint
ORDER BY check_at, task
LIMIT $2
