INSERT INTO receipts (space, op, actor, verb, request, outcome, at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
