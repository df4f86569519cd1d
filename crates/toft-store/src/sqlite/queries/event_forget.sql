-- From the front, as far as one batch of events reaches or the first that is not old; the newest stays. Events from the future
-- are stepped over: they neither count nor end the batch.
DELETE FROM events
WHERE at < ?1
    AND seq < (SELECT max(seq) FROM events)
    AND seq <= (SELECT max(seq) FROM (SELECT seq FROM events WHERE at <= ?3 ORDER BY seq LIMIT ?2))
    AND seq < coalesce((
        SELECT min(seq) FROM (SELECT seq, at FROM events WHERE at <= ?3 ORDER BY seq LIMIT ?2) WHERE at >= ?1
    ), 9223372036854775807)
