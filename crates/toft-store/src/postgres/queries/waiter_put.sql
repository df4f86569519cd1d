INSERT INTO waiters (space, id, since, until)
VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond', clock_timestamp() + $4 * interval '1 millisecond')
ON CONFLICT (space, id) DO UPDATE SET
    since = excluded.since,
    until = excluded.until
