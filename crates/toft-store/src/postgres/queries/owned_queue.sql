SELECT task, lane, rank, workflow, worktree, labels FROM queue WHERE space = $1
