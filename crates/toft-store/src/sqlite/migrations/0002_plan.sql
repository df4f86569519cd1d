-- Workflows that are on an issue: at most one at a time, and which of those that are over its ledger was not told of.
ALTER TABLE workflows ADD COLUMN issue TEXT;
ALTER TABLE workflows ADD COLUMN issue_state TEXT;
CREATE UNIQUE INDEX workflows_on_issues ON workflows (issue) WHERE issue_state = 'live';
CREATE INDEX workflows_untold ON workflows (id) WHERE issue_state = 'untold';

-- The index of ledgers. All of it is derived from files, and can be dropped and made anew at any time.
CREATE TABLE ledger_files (
    ledger   TEXT NOT NULL,
    file     TEXT NOT NULL,
    device   INTEGER NOT NULL,
    inode    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    written  INTEGER NOT NULL,
    looked   INTEGER NOT NULL,
    ingested INTEGER NOT NULL,
    tail     TEXT NOT NULL,
    newest   TEXT NOT NULL,
    troubles TEXT NOT NULL,
    PRIMARY KEY (ledger, file)
) WITHOUT ROWID;

CREATE TABLE issues (
    n           INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    ledger      TEXT NOT NULL,
    file        TEXT NOT NULL,
    status      TEXT NOT NULL,
    epic        INTEGER NOT NULL,
    deleted     INTEGER NOT NULL,
    parent      TEXT,
    defer_until INTEGER,
    priority    INTEGER NOT NULL,
    unfinished  INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    first       INTEGER NOT NULL,
    labels      TEXT NOT NULL,
    opens       INTEGER,
    rank        TEXT NOT NULL,
    line        TEXT NOT NULL
);
CREATE UNIQUE INDEX issues_by_id ON issues (id, ledger);
-- What can start, best first; some of it only later.
CREATE INDEX issues_ready ON issues (rank) WHERE opens IS NOT NULL;
CREATE INDEX issues_by_parent ON issues (parent, unfinished) WHERE parent IS NOT NULL;
CREATE INDEX issues_unfinished ON issues (created DESC, id DESC) WHERE unfinished = 1;
CREATE INDEX issues_by_time ON issues (created DESC, id DESC);

CREATE TABLE issue_deps (
    target TEXT NOT NULL,
    id     TEXT NOT NULL,
    ledger TEXT NOT NULL,
    kind   TEXT NOT NULL,
    blocks INTEGER NOT NULL,
    PRIMARY KEY (target, id, ledger, kind)
) WITHOUT ROWID;
CREATE INDEX issue_deps_of ON issue_deps (id, ledger);

CREATE VIRTUAL TABLE issue_words USING fts5 (title, rest, content = '', contentless_delete = 1);
