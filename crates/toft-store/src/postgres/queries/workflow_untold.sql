SELECT body FROM workflows
WHERE space = $1 AND ledger_pending = 1 AND ($3 IS NULL OR repository = $3)
ORDER BY id LIMIT $2
