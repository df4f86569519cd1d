-- Inboxes of the agents that are forgotten next, the same ones in the same order.
DELETE FROM deliveries
WHERE recipient IN (
    SELECT a.id
    FROM agents a
    WHERE a.body ->> 'seen' < ?1
        AND a.body ->> 'state' <> 'draining'
        AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.agent = a.id)
    ORDER BY a.id
    LIMIT ?2
)
