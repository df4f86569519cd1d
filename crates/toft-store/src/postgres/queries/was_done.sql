SELECT (EXISTS (SELECT 1 FROM events WHERE space = $1 AND seq > $2 AND op = $3)
    OR EXISTS (SELECT 1 FROM receipts WHERE space = $1 AND op = $3))::int::bigint
