SELECT id FROM (
    SELECT id FROM tasks WHERE id >= ?1 AND id < ?2
    UNION ALL
    SELECT id FROM workflows WHERE id >= ?1 AND id < ?2
    UNION ALL
    SELECT id FROM agents WHERE id >= ?1 AND id < ?2
    UNION ALL
    SELECT id FROM gates WHERE id >= ?1 AND id < ?2
    UNION ALL
    SELECT id FROM workspaces WHERE id >= ?1 AND id < ?2
    UNION ALL
    SELECT id FROM landings WHERE id >= ?1 AND id < ?2
)
ORDER BY id
LIMIT ?3
