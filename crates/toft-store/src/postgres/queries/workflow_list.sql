SELECT body
FROM workflows
WHERE space = $1
    AND ($2 IS NULL OR repository = $2
        OR $3 IS NULL AND strpos(body, $2) > 0 AND jsonb_exists(body::jsonb -> 'repositories', $2))
    AND ($3 IS NULL OR worktree = $3)
    AND ($4 = '' OR strpos($4, ' ' || status || ' ') > 0)
ORDER BY created DESC, id DESC
LIMIT $5
