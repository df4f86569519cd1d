-- Like queue_list, but steps over what another claim is looking at, and brings the workflow along. The marks,
-- left and minded unless $6 is 0, are hints that end with the transaction; whether a claim stands is decided at its commit.
SELECT c.lane, c.rank, c.worktree, c.labels, t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated,
    hash_record_extended(ROW (t.id, t.workflow, t.ord, t.repository, t.worktree, t.created, t.body, s.status, s.attempt, s.fence, s.open_blockers, s.unblocks, s.not_before, s.outcome, s.updated), 0) AS print,
    w.body AS workflow_body, hash_record_extended(ROW (w.body), 0) AS workflow_print
FROM (
    SELECT *
    FROM (
        SELECT q.lane, q.rank, q.worktree, q.labels, q.task
        FROM queue q
        WHERE q.space = $1 AND q.lane = $2 AND q.rank > $3 AND q.rank < $4
            AND q.rank >= coalesce((SELECT f.rank FROM queue_floors f WHERE f.space = $1 AND f.lane = $2 ORDER BY f.n DESC LIMIT 1), '')
        ORDER BY q.rank
        OFFSET 0
    ) o
    WHERE $6 = 0 OR pg_try_advisory_xact_lock(hashtextextended($1 || o.task, 1))
    LIMIT $5
) c
JOIN tasks t ON t.space = $1 AND t.id = c.task
JOIN task_states s ON s.space = $1 AND s.id = c.task
JOIN workflows w ON w.space = $1 AND w.id = t.workflow
