-- Three ranges of one index, and one of another; `<>` and `OR` would read every lease.
SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder
FROM leases
WHERE space = $1 AND task IN (
    SELECT task FROM leases WHERE space = $1 AND epoch = $2 AND check_at <= $3
    UNION ALL
    SELECT task FROM leases WHERE space = $1 AND epoch < $2
    UNION ALL
    SELECT task FROM leases WHERE space = $1 AND epoch > $2
    UNION ALL
    SELECT task FROM leases WHERE space = $1 AND holder > $5 AND holder < $6
)
ORDER BY check_at, task
LIMIT $4
