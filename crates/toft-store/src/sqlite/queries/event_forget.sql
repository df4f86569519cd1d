-- From the front, as far as one batch reaches; the newest stays.
DELETE FROM events
WHERE at < ?1
    AND seq < (SELECT min(seq) FROM events) + ?2
    AND seq < (SELECT max(seq) FROM events)
