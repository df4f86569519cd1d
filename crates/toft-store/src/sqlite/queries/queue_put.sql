INSERT INTO queue (task, lane, rank)
VALUES (?1, ?2, ?3)
ON CONFLICT (task) DO UPDATE SET
    lane = excluded.lane,
    rank = excluded.rank
