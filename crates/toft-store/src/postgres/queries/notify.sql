SELECT pg_notify($1, '') IS NULL
