INSERT INTO receipts (space, op, actor, verb, outcome, at)
VALUES ($1, $2, $3, $4, $5, $6)
