-- Directories in which work is done. A row is there before its directory and stays after it.
CREATE TABLE workspaces (
    space      word NOT NULL,
    id         word NOT NULL,
    repository word NOT NULL,
    created    bigint NOT NULL,
    live       bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (space, id)
);
CREATE INDEX workspaces_live ON workspaces (space, created DESC, id DESC) WHERE live = 1;
CREATE INDEX workspaces_by_time ON workspaces (space, created DESC, id DESC);
