-- Inboxes of the agents that are forgotten next, the same ones in the same order.
DELETE FROM deliveries
WHERE space = $1 AND recipient IN (
    SELECT a.id
    FROM agents a
    WHERE a.space = $1
        AND a.body::json ->> 'seen' < $2
        AND a.body::json ->> 'state' <> 'draining'
        AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.space = $1 AND l.agent = a.id)
    ORDER BY a.id
    LIMIT $3
)
