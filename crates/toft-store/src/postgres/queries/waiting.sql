SELECT count(*) FROM waiters WHERE space = $1 AND since <= clock_timestamp() AND until > clock_timestamp()
