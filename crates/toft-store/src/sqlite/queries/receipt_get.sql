SELECT op, verb, outcome, at FROM receipts WHERE op = ?1
