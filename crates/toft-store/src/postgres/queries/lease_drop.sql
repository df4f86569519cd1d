DELETE FROM leases WHERE space = $1 AND task = $2
