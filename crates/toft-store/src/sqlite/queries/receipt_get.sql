SELECT op, actor, verb, outcome, at FROM receipts WHERE op = ?1
