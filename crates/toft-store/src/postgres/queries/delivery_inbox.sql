-- Inside a JSON text a quote is escaped, so the pattern finds the field and nothing a message says.
SELECT d.recipient, d.rank, d.state, d.read_at, m.body, a.body AS sender
FROM deliveries d
JOIN messages m ON m.space = d.space AND m.id = d.message
LEFT JOIN agents a ON a.space = d.space AND a.id = substring(m.body FROM '"from":"([^"]+)"')
WHERE d.space = $1 AND d.recipient = $2
ORDER BY d.rank
LIMIT $3
