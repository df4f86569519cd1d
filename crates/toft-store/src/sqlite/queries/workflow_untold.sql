SELECT body FROM workflows INDEXED BY workflows_untold WHERE issue_state = 'untold' ORDER BY id LIMIT ?1
