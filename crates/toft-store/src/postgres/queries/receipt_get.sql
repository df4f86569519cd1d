SELECT op, actor, verb, outcome, at FROM receipts WHERE space = $1 AND op = $2
