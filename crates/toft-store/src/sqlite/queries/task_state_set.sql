UPDATE task_states
SET status = ?2, attempt = ?3, fence = ?4, open_blockers = ?5, unblocks = ?6, not_before = ?7, outcome = ?8, updated = ?9
WHERE id = ?1
