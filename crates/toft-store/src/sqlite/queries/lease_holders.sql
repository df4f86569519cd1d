-- One probe of the index for each process, however many leases it holds.
WITH RECURSIVE processes (holder) AS (
    SELECT min(holder) FROM leases WHERE holder > ?1 AND holder < ?2
    UNION ALL
    SELECT (SELECT min(l.holder) FROM leases l WHERE l.holder > p.holder AND l.holder < ?2)
    FROM processes p
    WHERE p.holder IS NOT NULL
)
SELECT holder FROM processes WHERE holder IS NOT NULL
