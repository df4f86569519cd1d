-- Under the lock of the space, so that the numbers have no gap and follow the order of commits.
INSERT INTO events (space, seq, at, actor, repository, worktree, entity, verb, detail, op, part)
SELECT $1, coalesce(max(seq), 0) + 1, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM events WHERE space = $1
