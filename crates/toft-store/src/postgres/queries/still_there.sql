-- Is that transaction of that backend still there? Where the server does not tell, perhaps.
SELECT count(*)
FROM pg_stat_activity
WHERE pid = $1 AND (state = 'disabled' OR (extract(epoch FROM xact_start) * 1000000)::bigint = $2)
