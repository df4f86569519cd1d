DELETE FROM messages
WHERE space = $1 AND id IN (
    SELECT m.id
    FROM messages m
    WHERE m.space = $1 AND substring(m.body FROM '"created":"([^"]+)"') < $2
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.space = $1 AND d.message = m.id)
    LIMIT $3
)
