SELECT body FROM workflows WHERE space = $1 AND lane_open = 1 ORDER BY id
