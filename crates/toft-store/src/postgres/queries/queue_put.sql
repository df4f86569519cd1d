WITH lower AS (
    INSERT INTO queue_floors (space, lane, n, rank)
    SELECT $1, $3, f.n + 1, $4
    FROM (SELECT n, rank FROM queue_floors WHERE space = $1 AND lane = $3 ORDER BY n DESC LIMIT 1) f
    WHERE $4 < f.rank
)
INSERT INTO queue (space, task, lane, rank, workflow, worktree, labels)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (space, task) DO UPDATE SET
    lane = excluded.lane,
    rank = excluded.rank,
    workflow = excluded.workflow,
    worktree = excluded.worktree,
    labels = excluded.labels
