SELECT body FROM tokens WHERE digest = ?1
