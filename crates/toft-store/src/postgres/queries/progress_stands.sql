-- Whether tasks of each status are left once this transaction's own changes are counted in; not how many.
coalesce((
    SELECT string_agg(CASE WHEN u.count + u.change > 0 THEN '1' ELSE '0' END, '' ORDER BY u.place)
    FROM (SELECT counts FROM progress WHERE space = $1 AND workflow = $2 ORDER BY n DESC LIMIT 1) p,
        unnest(p.counts, $3::text::bigint[]) WITH ORDINALITY u (count, change, place)
), 'none') = $4
