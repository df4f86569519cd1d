-- Looked for among the newest, where it must be if it was done a moment ago.
SELECT (EXISTS (
    SELECT 1 FROM (SELECT op FROM events WHERE space = $1 ORDER BY seq DESC LIMIT 1000000) e WHERE e.op = $2
) OR EXISTS (
    SELECT 1 FROM receipts WHERE space = $1 AND op = $2
))::int::bigint
