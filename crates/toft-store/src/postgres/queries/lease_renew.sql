UPDATE leases
SET ttl = $4, cap = $5, renewed = $6, tick = $7, epoch = $8, check_at = $9, seen = $10
WHERE space = $1 AND task = $2 AND lease = $3
