SELECT body
FROM workflows
WHERE (?1 IS NULL OR repository = ?1) AND (?2 IS NULL OR worktree = ?2)
    AND (?3 = '' OR instr(?3, ' ' || status || ' ') > 0)
ORDER BY created DESC, id DESC
LIMIT ?4
