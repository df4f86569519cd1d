-- Finished work on its way into a target branch.
CREATE TABLE landings (
    space      word NOT NULL,
    id         word NOT NULL,
    repository word NOT NULL,
    created    bigint NOT NULL,
    live       bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (space, id)
);
CREATE INDEX landings_live ON landings (space, created DESC, id DESC) WHERE live = 1;
CREATE INDEX landings_by_time ON landings (space, created DESC, id DESC);
-- Results of checks, by tree and commands.
CREATE TABLE verdicts (
    space      word NOT NULL,
    key        word NOT NULL,
    repository word NOT NULL,
    flaky      bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (space, key)
);
CREATE INDEX verdicts_flaky ON verdicts (space, repository, key) WHERE flaky = 1;
