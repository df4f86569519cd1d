DELETE FROM receipts WHERE space = $1 AND op IN (SELECT op FROM receipts WHERE space = $1 AND at < $2 LIMIT $3)
