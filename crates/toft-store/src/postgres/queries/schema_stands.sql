-- Divides by zero unless the schema serves this toft.
SELECT 1 / (coalesce(max(number), 0) >= $1 AND coalesce(max(coalesce(nullif(split_part(name, ':', 2), '')::bigint, number)), 0) <= $1)::int
FROM migrations
