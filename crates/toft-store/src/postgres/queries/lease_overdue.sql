-- A range of one index and one of another; `OR` would read every lease.
SELECT task, workflow, repository, agent, fence, lease, acquired, ttl, cap, renewed, epoch, tick, check_at, holder, seen
FROM leases
WHERE space = $1 AND task IN (
    SELECT task FROM leases WHERE space = $1 AND check_at <= $2
    UNION ALL
    SELECT task FROM leases WHERE space = $1 AND holder > $4 AND holder < $5
)
ORDER BY check_at, task
LIMIT $3
