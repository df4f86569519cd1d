DELETE FROM workspaces
WHERE id IN (
    SELECT id FROM workspaces WHERE live = 0 AND body ->> 'used' < ?1 AND body ->> 'rescue' IS NULL LIMIT ?2
)
