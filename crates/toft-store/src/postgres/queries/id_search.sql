SELECT id FROM (
    (SELECT id FROM tasks WHERE space = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4)
    UNION ALL
    (SELECT id FROM workflows WHERE space = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4)
    UNION ALL
    (SELECT id FROM agents WHERE space = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4)
    UNION ALL
    (SELECT id FROM gates WHERE space = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4)
    UNION ALL
    (SELECT id FROM workspaces WHERE space = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4)
    UNION ALL
    (SELECT id FROM landings WHERE space = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4)
) found
ORDER BY id
LIMIT $4
