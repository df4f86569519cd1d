-- Large details that no checkpoint refers to, and that nobody wrote again lately.
DELETE FROM blobs
WHERE space = $1 AND id IN (
    SELECT b.id
    FROM blobs b
    WHERE b.space = $1
        AND b.at < $2
        AND b.id NOT IN (
            SELECT c.body::json -> 'detail' ->> 'blob'
            FROM checkpoints c
            WHERE c.space = $1 AND c.body LIKE '%"blob":"%' AND c.body::json -> 'detail' ->> 'blob' IS NOT NULL
        )
    LIMIT $3
)
