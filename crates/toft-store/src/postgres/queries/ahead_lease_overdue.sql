-- lease_overdue at this moment.
SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder
FROM leases
WHERE space = $1 AND task IN (
    SELECT task FROM leases WHERE space = $1 AND epoch = $2 AND check_at <= (extract(epoch FROM transaction_timestamp()) * 1000)::bigint
    UNION ALL
    SELECT task FROM leases WHERE space = $1 AND epoch < $2
    UNION ALL
    SELECT task FROM leases WHERE space = $1 AND epoch > $2
)
ORDER BY check_at, task
LIMIT $3
