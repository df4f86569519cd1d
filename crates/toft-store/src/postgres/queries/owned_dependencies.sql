SELECT task, target, kind FROM dependencies WHERE space = $1
