SELECT body FROM gates WHERE id = ?1
