INSERT INTO task_states (space, id, workflow, status, attempt, fence, open_blockers, unblocks, not_before, outcome, updated)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (space, id) DO UPDATE SET
    workflow = excluded.workflow,
    status = excluded.status,
    attempt = excluded.attempt,
    fence = excluded.fence,
    open_blockers = excluded.open_blockers,
    unblocks = excluded.unblocks,
    not_before = excluded.not_before,
    outcome = excluded.outcome,
    updated = excluded.updated
