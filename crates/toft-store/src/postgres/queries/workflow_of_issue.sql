SELECT body FROM workflows WHERE space = $1 AND issue = $2 AND issue_state = 'live'
