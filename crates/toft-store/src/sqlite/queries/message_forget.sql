DELETE FROM messages
WHERE id IN (
    SELECT m.id
    FROM messages m
    WHERE m.body ->> 'created' < ?1
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message = m.id)
    LIMIT ?2
)
