SELECT body FROM messages WHERE id = ?1
