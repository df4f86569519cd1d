SELECT body FROM workflows INDEXED BY workflows_ledger_pending WHERE ledger_pending = 1 ORDER BY id LIMIT ?1
