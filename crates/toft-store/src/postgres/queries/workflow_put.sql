INSERT INTO workflows (space, id, repository, worktree, status, lane_open, created, body, issue, issue_state, ledger_pending)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (space, id) DO UPDATE SET
    status = excluded.status,
    lane_open = excluded.lane_open,
    body = excluded.body,
    issue_state = excluded.issue_state,
    ledger_pending = excluded.ledger_pending
