SELECT task, key, value FROM states WHERE space = $1 AND task = $2 AND key = $3
