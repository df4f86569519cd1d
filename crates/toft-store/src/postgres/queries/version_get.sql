SELECT version FROM space_versions WHERE space = $1
