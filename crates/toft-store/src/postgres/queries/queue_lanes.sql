-- One step for each lane, however many entries it has.
WITH RECURSIVE found (lane) AS (
    (SELECT q.lane FROM queue q WHERE q.space = $1 AND q.lane >= $2 AND q.lane < $3 ORDER BY q.lane LIMIT 1)
    UNION ALL
    SELECT (SELECT q.lane FROM queue q WHERE q.space = $1 AND q.lane > found.lane AND q.lane < $3 ORDER BY q.lane LIMIT 1)
    FROM found
    WHERE found.lane IS NOT NULL
)
SELECT lane FROM found WHERE lane IS NOT NULL LIMIT $4
