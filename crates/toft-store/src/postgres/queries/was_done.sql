-- By its receipt if it leaves one; else looked for among the newest events, where it must be if it was done a
-- moment ago.
SELECT CASE
    WHEN $3 = 1 THEN EXISTS (SELECT 1 FROM receipts WHERE space = $1 AND op = $2)
    ELSE EXISTS (SELECT 1 FROM (SELECT op FROM events WHERE space = $1 ORDER BY seq DESC LIMIT 1000000) e WHERE e.op = $2)
END::int::bigint
