-- Of messages that everyone has seen. There is no index by message: forgetting is rare, and sending is not.
DELETE FROM deliveries
WHERE message IN (
    SELECT m.id
    FROM messages m
    WHERE m.body ->> 'created' < ?1
        AND m.id NOT IN (SELECT message FROM deliveries WHERE state = 'queued')
    LIMIT ?2
)
