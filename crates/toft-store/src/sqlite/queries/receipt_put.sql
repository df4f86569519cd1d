INSERT INTO receipts (op, verb, outcome, at)
VALUES (?1, ?2, ?3, ?4)
