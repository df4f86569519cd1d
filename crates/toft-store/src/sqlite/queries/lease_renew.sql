UPDATE leases
SET ttl = ?3, cap = ?4, renewed = ?5, tick = ?6, epoch = ?7, check_at = ?8, seen = ?9
WHERE task = ?1 AND lease = ?2
