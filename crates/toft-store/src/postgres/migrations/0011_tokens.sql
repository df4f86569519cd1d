-- Who may ask a server what: digests of secrets.
CREATE TABLE tokens (
    space  word NOT NULL,
    digest word NOT NULL,
    name   word NOT NULL,
    body   text NOT NULL,
    PRIMARY KEY (space, digest)
);
CREATE INDEX tokens_by_name ON tokens (space, name, digest);
