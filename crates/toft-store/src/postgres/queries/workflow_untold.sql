SELECT body FROM workflows WHERE space = $1 AND ledger_pending = 1 ORDER BY id LIMIT $2
