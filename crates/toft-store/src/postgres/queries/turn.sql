-- Everyone who writes in a space of a schema, one after the other.
SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || '/' || $1, 0)) IS NULL
