-- One step for each lane, however many entries it has.
WITH RECURSIVE found (lane) AS (
    SELECT min(lane) FROM task_states INDEXED BY task_states_queue WHERE lane >= ?1 AND lane < ?2
    UNION ALL
    SELECT (SELECT min(s.lane) FROM task_states s INDEXED BY task_states_queue WHERE s.lane > found.lane AND s.lane < ?2)
    FROM found
    WHERE found.lane IS NOT NULL
)
SELECT lane FROM found WHERE lane IS NOT NULL LIMIT ?3
