SELECT body FROM verdicts WHERE space = $1 AND key = $2
