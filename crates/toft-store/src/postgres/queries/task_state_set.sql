UPDATE task_states
SET status = $3, attempt = $4, fence = $5, open_blockers = $6, unblocks = $7, not_before = $8, outcome = $9, updated = $10
WHERE space = $1 AND id = $2
