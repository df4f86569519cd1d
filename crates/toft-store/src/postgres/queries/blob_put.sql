-- One that is there already is as good as new: whoever puts it is about to refer to it.
INSERT INTO blobs (space, id, body)
VALUES ($1, $2, $3)
ON CONFLICT (space, id) DO UPDATE SET
    at = excluded.at
