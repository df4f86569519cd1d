-- A server that holds this space in memory sees that it changed.
UPDATE space_versions SET version = version + 1 WHERE space = $1
