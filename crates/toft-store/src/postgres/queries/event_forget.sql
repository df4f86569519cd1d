-- From the front, as far as one batch of events reaches or the first that is not old; the newest stays. Events from the future
-- are stepped over: they neither count nor end the batch.
DELETE FROM events
WHERE space = $1
    AND at < $2
    AND seq < (SELECT max(seq) FROM events WHERE space = $1)
    AND seq <= (
        SELECT max(seq) FROM (SELECT seq FROM events WHERE space = $1 AND at <= $4 ORDER BY seq LIMIT $3) front
    )
    AND seq < coalesce((
        SELECT min(seq)
        FROM (SELECT seq, at FROM events WHERE space = $1 AND at <= $4 ORDER BY seq LIMIT $3) front
        WHERE at >= $2
    ), 9223372036854775807)
