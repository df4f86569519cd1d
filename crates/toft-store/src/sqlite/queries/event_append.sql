INSERT INTO events (seq, at, actor, repository, worktree, entity, verb, detail, op, part)
SELECT coalesce(max(seq), 0) + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM events
