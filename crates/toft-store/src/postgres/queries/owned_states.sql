SELECT task, key, value FROM states WHERE space = $1
