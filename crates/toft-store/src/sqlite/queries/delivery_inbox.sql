SELECT m.body, d.state, a.body, d.read_at
FROM deliveries d
JOIN messages m ON m.id = d.message
LEFT JOIN agents a ON a.id = m.body ->> 'from'
WHERE d.recipient = ?1
ORDER BY d.rank
LIMIT ?2
