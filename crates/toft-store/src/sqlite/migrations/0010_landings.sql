-- Finished work on its way into a target branch.
CREATE TABLE landings (
    id         TEXT PRIMARY KEY,
    repository TEXT NOT NULL,
    created    INTEGER NOT NULL,
    live       INTEGER NOT NULL,
    body       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX landings_live ON landings (created DESC, id DESC) WHERE live = 1;
CREATE INDEX landings_by_time ON landings (created DESC, id DESC);
-- Results of checks, by tree and commands.
CREATE TABLE verdicts (
    key        TEXT PRIMARY KEY,
    repository TEXT NOT NULL,
    flaky      INTEGER NOT NULL,
    body       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX verdicts_flaky ON verdicts (repository, key) WHERE flaky = 1;
