-- When it is, as the database counts, and how to tell later whether this transaction is still there.
SELECT (extract(epoch FROM transaction_timestamp()) * 1000)::bigint,
    pg_current_snapshot()::text,
    pg_backend_pid()::bigint,
    (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint
