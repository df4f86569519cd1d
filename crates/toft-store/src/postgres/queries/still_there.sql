-- Is that transaction of that backend still there?
SELECT count(*)
FROM pg_stat_activity
WHERE pid = $1 AND (extract(epoch FROM xact_start) * 1000000)::bigint = $2
