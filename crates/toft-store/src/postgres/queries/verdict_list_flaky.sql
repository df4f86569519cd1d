SELECT body FROM verdicts WHERE space = $1 AND repository = $2 AND flaky = 1 ORDER BY key
