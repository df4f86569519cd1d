INSERT INTO receipts (op, actor, verb, request, outcome, at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
