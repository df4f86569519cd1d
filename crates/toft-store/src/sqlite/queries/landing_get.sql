SELECT body FROM landings WHERE id = ?1
