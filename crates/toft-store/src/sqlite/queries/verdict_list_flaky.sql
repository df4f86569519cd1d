SELECT body FROM verdicts WHERE repository = ?1 AND flaky = 1 ORDER BY key
