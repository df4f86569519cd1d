SELECT status, count FROM progress WHERE workflow = ?1 AND count > 0
