-- In the order in which they happened, under the lock of the space, so that the numbers have no gap.
INSERT INTO events (space, seq, at, actor, repository, worktree, entity, verb, detail, op, part)
SELECT $1, m.seq + u.n, u.at, u.actor, u.repository, u.worktree, u.entity, u.verb, u.detail, u.op, u.part
FROM (SELECT coalesce(max(seq), 0) AS seq FROM events WHERE space = $1) m,
    unnest(
        CAST($2 AS bigint[]), CAST($3 AS text[]), CAST($4 AS text[]), CAST($5 AS text[]), CAST($6 AS text[]),
        CAST($7 AS text[]), CAST($8 AS text[]), CAST($9 AS text[]), CAST($10 AS bigint[])
    ) WITH ORDINALITY AS u (at, actor, repository, worktree, entity, verb, detail, op, part, n)
