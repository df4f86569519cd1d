SELECT task, lane, rank FROM queue WHERE task = ?1
