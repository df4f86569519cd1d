WITH old AS (
    SELECT n, counts FROM progress WHERE space = $1 AND workflow = $2 ORDER BY n DESC LIMIT 1
), gone AS (
    DELETE FROM progress WHERE space = $1 AND workflow = $2 AND n = (SELECT n FROM old)
)
INSERT INTO progress (space, workflow, n, counts)
SELECT $1, $2, coalesce((SELECT n FROM old), 0) + 1, ARRAY[
    coalesce((SELECT counts[1] FROM old), 0) + $3,
    coalesce((SELECT counts[2] FROM old), 0) + $4,
    coalesce((SELECT counts[3] FROM old), 0) + $5,
    coalesce((SELECT counts[4] FROM old), 0) + $6,
    coalesce((SELECT counts[5] FROM old), 0) + $7,
    coalesce((SELECT counts[6] FROM old), 0) + $8,
    coalesce((SELECT counts[7] FROM old), 0) + $9,
    coalesce((SELECT counts[8] FROM old), 0) + $10
]
