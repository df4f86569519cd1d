-- When it is, as the database counts, how to tell later whether this transaction is still there, who waits, which schema
-- this is, when the newest event was written, and the oldest toft that the schema serves.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    pg_current_snapshot()::text,
    pg_backend_pid()::bigint,
    (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint,
    (SELECT count(*) FROM waiters WHERE space = $1 AND since <= clock_timestamp() AND until > clock_timestamp()),
    (SELECT coalesce(max(number), 0) FROM migrations),
    (SELECT at FROM events WHERE space = $1 ORDER BY seq DESC LIMIT 1),
    (SELECT coalesce(max(coalesce(nullif(split_part(name, ':', 2), '')::bigint, number)), 0) FROM migrations)
