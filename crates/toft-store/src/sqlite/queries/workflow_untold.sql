SELECT body FROM workflows INDEXED BY workflows_ledger_pending
WHERE ledger_pending = 1 AND (?2 IS NULL OR repository = ?2)
ORDER BY id LIMIT ?1
