-- Directories in which work is done. A row is there before its directory and stays after it.
CREATE TABLE workspaces (
    id         TEXT PRIMARY KEY,
    repository TEXT NOT NULL,
    created    INTEGER NOT NULL,
    live       INTEGER NOT NULL,
    body       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX workspaces_live ON workspaces (created DESC, id DESC) WHERE live = 1;
CREATE INDEX workspaces_by_time ON workspaces (created DESC, id DESC);
