SELECT body
FROM workflows
WHERE space = $1
    AND ($2 IS NULL OR repository = $2
        OR $3 IS NULL AND strpos(body, $2) > 0 AND body::jsonb -> 'repositories' @> to_jsonb($2::text))
    AND ($3 IS NULL OR worktree = $3)
    AND ($4 = '' OR strpos($4, ' ' || status || ' ') > 0)
ORDER BY created DESC, id DESC
LIMIT $5
