UPDATE leases
SET ttl = ?3, cap = ?4, renewed = ?5, tick = ?6
WHERE task = ?1 AND lease = ?2 AND epoch = ?7 AND check_at = ?8
