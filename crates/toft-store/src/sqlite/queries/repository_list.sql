SELECT body FROM repositories ORDER BY id
