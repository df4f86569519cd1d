SELECT task, target, kind FROM dependencies WHERE target = ?1 ORDER BY task, kind
