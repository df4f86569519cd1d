SELECT task, lane, rank, workflow, worktree, labels FROM queue WHERE space = $1 AND task = $2
