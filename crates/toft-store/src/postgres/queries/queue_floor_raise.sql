-- Now and then: nothing ranks before the first that is left.
WITH floor AS (
    SELECT coalesce(max(n), 0) AS n FROM queue_floors WHERE space = $1 AND lane = $2
), head AS (
    SELECT rank FROM queue WHERE space = $1 AND lane = $2 AND rank >= coalesce((SELECT f.rank FROM queue_floors f WHERE f.space = $1 AND f.lane = $2 ORDER BY f.n DESC LIMIT 1), '') ORDER BY rank LIMIT 1
), gone AS (
    DELETE FROM queue_floors WHERE space = $1 AND lane = $2 AND EXISTS (SELECT 1 FROM head)
)
INSERT INTO queue_floors (space, lane, n, rank)
SELECT $1, $2, floor.n + 1, head.rank FROM floor, head
