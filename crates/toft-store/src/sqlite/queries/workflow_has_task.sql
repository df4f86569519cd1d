SELECT EXISTS (SELECT 1 FROM progress WHERE workflow = ?1 AND status = ?2 AND count > 0)
