-- At most one row is gone; `max` reads it.
WITH gone AS (
    DELETE FROM progress
    WHERE space = $1 AND workflow = $2
        AND n = (SELECT n FROM progress WHERE space = $1 AND workflow = $2 ORDER BY n DESC LIMIT 1)
    RETURNING n, counts
)
INSERT INTO progress (space, workflow, n, counts)
SELECT $1, $2, coalesce(max(n), 0) + 1, ARRAY[
    coalesce(max(counts[1]), 0) + $3,
    coalesce(max(counts[2]), 0) + $4,
    coalesce(max(counts[3]), 0) + $5,
    coalesce(max(counts[4]), 0) + $6,
    coalesce(max(counts[5]), 0) + $7,
    coalesce(max(counts[6]), 0) + $8,
    coalesce(max(counts[7]), 0) + $9,
    coalesce(max(counts[8]), 0) + $10
]
FROM gone
