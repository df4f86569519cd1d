SELECT body FROM workflows INDEXED BY workflows_on_issues WHERE issue = ?1 AND issue_state = 'live'
