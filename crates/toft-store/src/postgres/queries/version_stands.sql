-- Divides by zero unless nothing was committed since.
SELECT 1 / count(*) FROM space_versions WHERE space = $1 AND version = $2
