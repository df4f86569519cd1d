-- task_state_set and queue_drop at once: both change the same row.
UPDATE task_states
SET status = ?2, attempt = ?3, fence = ?4, open_blockers = ?5, unblocks = ?6, not_before = ?7, outcome = ?8, updated = ?9,
    lane = NULL, rank = NULL
WHERE id = ?1
