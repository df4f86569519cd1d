DELETE FROM workspaces
WHERE space = $1 AND id IN (
    SELECT id
    FROM workspaces
    WHERE space = $1 AND live = 0 AND body::json ->> 'used' < $2 AND body::json ->> 'rescue' IS NULL
    LIMIT $3
)
