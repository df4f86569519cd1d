SELECT body FROM workflows WHERE space = $1 AND issue_state = 'untold' ORDER BY id LIMIT $2
