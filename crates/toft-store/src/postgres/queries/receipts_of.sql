SELECT op, actor, verb, request, outcome, at FROM receipts WHERE space = $1 AND op = ANY (CAST($2 AS text[]))
