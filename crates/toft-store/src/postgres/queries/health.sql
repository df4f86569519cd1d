-- What a server says of itself, and what keeps old rows from being cleared away.
SELECT current_setting('server_version_num')::bigint,
    current_setting('synchronous_commit'),
    current_setting('fsync'),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
    coalesce((
        SELECT extract(epoch FROM max(age))::bigint
        FROM (
            SELECT clock_timestamp() - xact_start AS age FROM pg_stat_activity WHERE backend_xmin IS NOT NULL
            UNION ALL
            SELECT clock_timestamp() - prepared FROM pg_prepared_xacts
        ) held
    ), 0),
    (SELECT count(*) FROM pg_replication_slots WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)),
    coalesce((
        SELECT max(n_dead_tup) FROM pg_stat_user_tables
        WHERE schemaname = current_schema() AND relname IN ('queue', 'leases', 'progress', 'task_states')
    ), 0),
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')::int::bigint
