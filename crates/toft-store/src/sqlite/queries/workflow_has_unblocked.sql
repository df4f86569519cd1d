-- Asked only when a task of the workflow has failed and nobody works on the rest.
SELECT EXISTS (
    SELECT 1
    FROM tasks t
    JOIN task_states s ON s.id = t.id
    WHERE t.workflow = ?1 AND s.status = 'pending' AND s.open_blockers = 0
)
