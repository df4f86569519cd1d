-- When it is, as the database counts, how to tell later whether this transaction is still there, who waits, which schema
-- this is, and when the newest event was written.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    pg_current_snapshot()::text,
    pg_backend_pid()::bigint,
    (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint,
    (SELECT count(*) FROM waiters WHERE space = $1 AND since <= clock_timestamp() AND until > clock_timestamp()),
    (SELECT coalesce(max(number), 0) FROM migrations),
    (SELECT at FROM events WHERE space = $1 ORDER BY seq DESC LIMIT 1)
