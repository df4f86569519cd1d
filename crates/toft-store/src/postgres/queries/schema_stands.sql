-- Divides by zero unless the schema is the one this toft knows.
SELECT 1 / (coalesce(max(number), 0) = $1)::int FROM migrations
