DELETE FROM queue WHERE space = $1 AND task = $2
