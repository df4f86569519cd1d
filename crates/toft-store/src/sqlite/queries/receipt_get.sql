SELECT op, actor, verb, request, outcome, at FROM receipts WHERE op = ?1
