-- Counts no further than it matters.
SELECT count(*) FROM (SELECT 1 FROM tasks WHERE space = $1 LIMIT $2) t
