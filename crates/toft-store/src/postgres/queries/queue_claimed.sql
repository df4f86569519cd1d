-- Takes a task from where it was seen; a failure if it is no longer there.
WITH gone AS (DELETE FROM queue WHERE space = $1 AND task = $2 AND rank = $3 RETURNING 1)
SELECT 1 / count(*) FROM gone
