SELECT body FROM messages WHERE space = $1 AND id = $2
