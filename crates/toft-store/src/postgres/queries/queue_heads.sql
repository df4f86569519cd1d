-- The first entries of several lanes ($2, a JSON array) in one order. From each lane come as many as are wanted, and
-- some more, as other claims may be looking at the first ones.
SELECT q.task
FROM jsonb_array_elements_text($2::jsonb) l (lane)
CROSS JOIN LATERAL (
    SELECT q.task, q.rank
    FROM queue q
    WHERE q.space = $1 AND q.lane = l.lane AND q.rank > $3 AND q.rank < $4
        AND q.rank >= coalesce((SELECT f.rank FROM queue_floors f WHERE f.space = $1 AND f.lane = l.lane ORDER BY f.n DESC LIMIT 1), '')
    ORDER BY q.rank
    LIMIT $5 + 16
) q
ORDER BY q.rank
