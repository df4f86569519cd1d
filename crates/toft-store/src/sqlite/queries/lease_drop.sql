DELETE FROM leases WHERE task = ?1
