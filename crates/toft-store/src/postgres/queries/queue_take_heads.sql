-- Like queue_take, from the entries that a query called `heads` brings.
SELECT q.lane, q.rank, q.worktree, q.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated,
    hash_record_extended(ROW (t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated), 0) AS print,
    w.body AS workflow_body, hash_record_extended(ROW (w.body), 0) AS workflow_print
FROM (
    SELECT h.task
    FROM heads h
    WHERE $6 = 0 OR pg_try_advisory_xact_lock(hashtextextended($1 || h.task, 1))
    LIMIT $5
) c
JOIN queue q ON q.space = $1 AND q.task = c.task
JOIN tasks t ON t.space = $1 AND t.id = c.task
JOIN task_states s ON s.space = $1 AND s.id = c.task
JOIN workflows w ON w.space = $1 AND w.id = t.workflow
