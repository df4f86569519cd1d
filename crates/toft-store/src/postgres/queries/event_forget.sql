-- From the front, as far as one batch reaches or the first that is not old; the newest stays.
DELETE FROM events
WHERE space = $1
    AND seq < (SELECT min(seq) FROM events WHERE space = $1) + $3
    AND seq < (SELECT max(seq) FROM events WHERE space = $1)
    AND seq < coalesce((
        SELECT min(seq)
        FROM events
        WHERE space = $1 AND at >= $2 AND seq < (SELECT min(seq) FROM events WHERE space = $1) + $3
    ), 9223372036854775807)
