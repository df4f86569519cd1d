-- Columns for what is asked, JSON (`body`) for what is told.
-- What changes while work goes on (task_states, leases, queue) is narrow and apart from what does not.
-- Every table but those of the index of ledgers is the truth; the index can be dropped and derived again.

CREATE TABLE repositories (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE worktrees (
    repository TEXT NOT NULL,
    name       TEXT NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (repository, name)
) WITHOUT ROWID;

CREATE TABLE workflows (
    id         TEXT PRIMARY KEY,
    repository TEXT,
    worktree   TEXT,
    status     TEXT NOT NULL,
    lane_open  INTEGER NOT NULL,
    created    INTEGER NOT NULL,
    body       TEXT NOT NULL,
    issue      TEXT,
    -- 'live' while it works on the issue: at most one workflow at a time.
    issue_state    TEXT,
    -- The ledger of its issue has to be told something, whether the workflow is over or not.
    ledger_pending INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX workflows_by_time ON workflows (created DESC, id DESC);
-- Lanes a claim must look into: few, however many workflows there are.
CREATE INDEX workflows_open_lanes ON workflows (id) WHERE lane_open = 1;
CREATE UNIQUE INDEX workflows_on_issues ON workflows (issue) WHERE issue_state = 'live';
CREATE INDEX workflows_ledger_pending ON workflows (id) WHERE ledger_pending = 1;

CREATE TABLE tasks (
    id         TEXT PRIMARY KEY,
    workflow   TEXT NOT NULL REFERENCES workflows (id),
    ord        INTEGER NOT NULL,
    repository TEXT,
    worktree   TEXT,
    created    INTEGER NOT NULL,
    body       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX tasks_by_plan ON tasks (workflow, ord, id);
CREATE INDEX tasks_by_time ON tasks (created DESC, id DESC);

CREATE TABLE task_states (
    id            TEXT PRIMARY KEY REFERENCES tasks (id),
    workflow      TEXT NOT NULL,
    status        TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    fence         INTEGER NOT NULL,
    open_blockers INTEGER NOT NULL,
    unblocks      INTEGER NOT NULL,
    not_before    INTEGER,
    outcome       TEXT,
    updated       INTEGER NOT NULL,
    lane          TEXT,
    rank          TEXT,
    worktree      TEXT,
    -- A JSON array; null without labels.
    labels        TEXT
) WITHOUT ROWID;
-- The queue, indexed by what a claim may ask for: workflow, worktree, labels. Tasks that require capabilities stand in
-- lanes of their own. Lane and rank are computed in toft-core; here they are only compared.
CREATE UNIQUE INDEX task_states_queue ON task_states (lane, rank) WHERE lane IS NOT NULL;
CREATE INDEX task_states_queue_by_workflow ON task_states (workflow, lane, rank) WHERE lane IS NOT NULL;
-- Most tasks are of the main worktree, and an index costs every claim a page: its tasks are found in their lane.
CREATE INDEX task_states_queue_by_worktree ON task_states (worktree, lane, rank)
WHERE lane IS NOT NULL AND worktree <> 'main';
CREATE INDEX task_states_failed ON task_states (id) WHERE status = 'failed';

-- How many tasks of a workflow have each status. Counted here, because an index on the status would move
-- two pages with every claim, and this moves one.
CREATE TABLE progress (
    workflow TEXT NOT NULL,
    status   TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (workflow, status)
) WITHOUT ROWID;
CREATE TRIGGER progress_insert AFTER INSERT ON task_states BEGIN
    INSERT INTO progress VALUES (new.workflow, new.status, 1)
    ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER progress_update AFTER UPDATE OF status ON task_states WHEN old.status <> new.status BEGIN
    UPDATE progress SET count = count - 1 WHERE workflow = old.workflow AND status = old.status;
    INSERT INTO progress VALUES (new.workflow, new.status, 1)
    ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TABLE queue_labels (
    label TEXT NOT NULL,
    lane  TEXT NOT NULL,
    rank  TEXT NOT NULL,
    task  TEXT NOT NULL,
    PRIMARY KEY (label, lane, rank)
) WITHOUT ROWID;
CREATE TRIGGER queue_labels_update AFTER UPDATE OF lane, rank, labels ON task_states
WHEN old.labels IS NOT NULL OR new.labels IS NOT NULL BEGIN
    DELETE FROM queue_labels
    WHERE lane = old.lane AND rank = old.rank AND label IN (SELECT value FROM json_each(old.labels));
    INSERT INTO queue_labels
    SELECT value, new.lane, new.rank, new.id FROM json_each(new.labels) WHERE new.lane IS NOT NULL;
END;

CREATE TABLE dependencies (
    task   TEXT NOT NULL REFERENCES tasks (id),
    target TEXT NOT NULL,
    kind   TEXT NOT NULL,
    PRIMARY KEY (task, target, kind)
) WITHOUT ROWID;
CREATE INDEX dependencies_by_target ON dependencies (target, task, kind);

-- Live leases only, one for each task; ended ones are attempts. There are as many as agents at work, so what is
-- asked of them is read through, a tenth of a microsecond a row; an index would cost every claim a page.
CREATE TABLE leases (
    task       TEXT PRIMARY KEY REFERENCES tasks (id),
    workflow   TEXT NOT NULL,
    repository TEXT,
    agent      TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    lease      TEXT NOT NULL,
    acquired   INTEGER NOT NULL,
    ttl        INTEGER NOT NULL,
    cap        INTEGER NOT NULL,
    renewed    INTEGER NOT NULL,
    epoch      TEXT NOT NULL,
    tick       INTEGER NOT NULL,
    check_at   INTEGER NOT NULL,
    holder     TEXT,
    -- Which machines watch for a renewal, each since when on its own monotonic clock, as JSON.
    seen       TEXT
) WITHOUT ROWID;
CREATE INDEX leases_by_agent ON leases (agent);

CREATE TABLE attempts (
    task       TEXT NOT NULL REFERENCES tasks (id),
    fence      INTEGER NOT NULL,
    lease      TEXT NOT NULL,
    agent      TEXT NOT NULL,
    repository TEXT,
    worktree   TEXT,
    started    INTEGER NOT NULL,
    ended      INTEGER,
    result     TEXT,
    reason     TEXT,
    cost       REAL,
    -- What a runner saw of it, as JSON.
    report     TEXT,
    PRIMARY KEY (task, fence)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    task TEXT NOT NULL REFERENCES tasks (id),
    seq  INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (task, seq)
) WITHOUT ROWID;

CREATE TABLE states (
    task  TEXT NOT NULL REFERENCES tasks (id),
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

CREATE TABLE agents (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE messages (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE deliveries (
    recipient TEXT NOT NULL,
    rank      TEXT NOT NULL,
    message   TEXT NOT NULL REFERENCES messages (id),
    state     TEXT NOT NULL,
    -- When the message was first shown to its recipient.
    read_at   INTEGER,
    PRIMARY KEY (recipient, rank)
) WITHOUT ROWID;
CREATE INDEX deliveries_unread ON deliveries (recipient, rank) WHERE state = 'queued';

CREATE TABLE gates (
    id         TEXT PRIMARY KEY,
    task       TEXT NOT NULL REFERENCES tasks (id),
    repository TEXT,
    worktree   TEXT,
    created    INTEGER NOT NULL,
    unopened   INTEGER NOT NULL,
    body       TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX gates_by_task ON gates (task, created, id);
CREATE INDEX gates_unopened ON gates (created, id) WHERE unopened = 1;

CREATE TABLE templates (
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (name, version)
) WITHOUT ROWID;

CREATE TABLE events (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    repository TEXT,
    worktree   TEXT,
    entity     TEXT NOT NULL,
    verb       TEXT NOT NULL,
    detail     TEXT NOT NULL,
    op         TEXT NOT NULL,
    part       INTEGER NOT NULL
);
CREATE INDEX events_by_entity ON events (entity, seq);

CREATE TABLE receipts (
    op      TEXT PRIMARY KEY,
    actor   TEXT NOT NULL,
    verb    TEXT NOT NULL,
    outcome TEXT NOT NULL,
    at      INTEGER NOT NULL,
    -- A digest of what was asked under the operation id.
    request TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

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

-- Who may ask a server what: digests of secrets.
CREATE TABLE tokens (
    digest TEXT PRIMARY KEY,
    name   TEXT NOT NULL,
    body   TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX tokens_by_name ON tokens (name, digest);

-- The index of ledgers.
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
    line        TEXT NOT NULL,
    -- What the issue is to who sees it in a ledger: its own, proposed, or another ledger's.
    part        TEXT NOT NULL DEFAULT '',
    assignee    TEXT
);
CREATE UNIQUE INDEX issues_by_id ON issues (id, ledger);
-- What can start, best first; some of it only later.
CREATE INDEX issues_ready ON issues (rank) WHERE opens IS NOT NULL;
CREATE INDEX issues_assigned ON issues (assignee, rank) WHERE opens IS NOT NULL AND assignee IS NOT NULL;
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
