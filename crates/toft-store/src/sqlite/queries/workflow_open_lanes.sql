SELECT body FROM workflows INDEXED BY workflows_open_lanes WHERE lane_open = 1 ORDER BY id
