DELETE FROM waiters WHERE space = $1 AND (id = $2 OR until < clock_timestamp() - interval '1 hour')
