-- Like queue_take, from the entries that a query called `heads` brings; the rest is looked up for each that is taken.
SELECT r.*
FROM (
    SELECT h.task
    FROM heads h
    WHERE $6 = 0 OR pg_try_advisory_xact_lock(hashtextextended($1 || h.task, 1))
    LIMIT $5
) c
CROSS JOIN LATERAL (
    SELECT q.lane, q.rank, q.worktree AS queue_worktree, q.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated,
        hash_record_extended(ROW (t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated), 0) AS print,
        w.body AS workflow_body, hash_record_extended(ROW (w.body), 0) AS workflow_print
    FROM queue q
    JOIN tasks t ON t.space = q.space AND t.id = q.task
    JOIN task_states s ON s.space = q.space AND s.id = q.task
    JOIN workflows w ON w.space = q.space AND w.id = t.workflow
    WHERE q.space = $1 AND q.task = c.task
    OFFSET 0
) r
