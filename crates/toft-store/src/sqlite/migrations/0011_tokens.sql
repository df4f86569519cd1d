-- Who may ask a server what: digests of secrets.
CREATE TABLE tokens (
    digest TEXT PRIMARY KEY,
    name   TEXT NOT NULL,
    body   TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX tokens_by_name ON tokens (name, digest);
