-- From the front, as far as one batch reaches or the first that is not old; the newest stays.
DELETE FROM events
WHERE seq < (SELECT min(seq) FROM events) + ?2
    AND seq < (SELECT max(seq) FROM events)
    AND seq < coalesce((
        SELECT min(seq) FROM events WHERE at >= ?1 AND seq < (SELECT min(seq) FROM events) + ?2
    ), 9223372036854775807)
