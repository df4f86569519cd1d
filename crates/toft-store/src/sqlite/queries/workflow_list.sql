SELECT body
FROM workflows
WHERE (?1 IS NULL OR repository = ?1
        OR ?2 IS NULL AND instr(body, ?1) > 0 AND EXISTS (SELECT 1 FROM json_each(body, '$.repositories') WHERE value = ?1))
    AND (?2 IS NULL OR worktree = ?2)
    AND (?3 = '' OR instr(?3, ' ' || status || ' ') > 0)
ORDER BY created DESC, id DESC
LIMIT ?4
