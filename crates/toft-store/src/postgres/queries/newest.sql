-- Moves with every commit on the server.
SELECT hashtextextended(pg_current_snapshot()::text, 0)
