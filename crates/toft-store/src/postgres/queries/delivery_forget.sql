-- Of messages that everyone has seen. There is no index by message: forgetting is rare, and sending is not.
DELETE FROM deliveries
WHERE space = $1 AND message IN (
    SELECT m.id
    FROM messages m
    WHERE m.space = $1 AND substring(m.body FROM '"created":"([^"]+)"') < $2
        AND m.id NOT IN (SELECT message FROM deliveries WHERE space = $1 AND state = 'queued')
    LIMIT $3
)
