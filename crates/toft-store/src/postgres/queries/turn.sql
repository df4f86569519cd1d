-- Everyone who writes in a space of a schema, one after the other. While the schema is being upgraded nobody does: that divides
-- by zero, and the operation runs again. Waiting for the upgrade here would be a deadlock, since this transaction has read.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '/' || $1, 0)) IS NULL,
    1 / pg_try_advisory_xact_lock_shared(hashtextextended('toft ' || current_schema(), 2))::int
