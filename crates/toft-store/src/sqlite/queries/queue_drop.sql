DELETE FROM queue WHERE task = ?1
