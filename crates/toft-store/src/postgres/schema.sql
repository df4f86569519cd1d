-- Every table and every index leads with the space, so that a space can move to another server whole.
-- Columns for what is asked, JSON (`body`) for what is told. Words compare by byte, as in Rust.
-- No foreign keys: rows are written by one rule book, under one lock for each space.

CREATE DOMAIN word AS text COLLATE "C";

CREATE TABLE repositories (
    space word NOT NULL,
    id    word NOT NULL,
    body  text NOT NULL,
    PRIMARY KEY (space, id)
);

CREATE TABLE worktrees (
    space      word NOT NULL,
    repository word NOT NULL,
    name       word NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (space, repository, name)
);

CREATE TABLE workflows (
    space      word NOT NULL,
    id         word NOT NULL,
    repository word,
    worktree   word,
    status     word NOT NULL,
    lane_open  bigint NOT NULL,
    created    bigint NOT NULL,
    body       text NOT NULL,
    issue      word,
    -- 'live' while it works on the issue: at most one workflow at a time.
    issue_state    word,
    -- The ledger of its issue has to be told something, whether the workflow is over or not.
    ledger_pending bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (space, id)
) WITH (fillfactor = 80);
CREATE INDEX workflows_by_time ON workflows (space, created DESC, id DESC);
-- Lanes a claim must look into: few, however many workflows there are.
CREATE INDEX workflows_open_lanes ON workflows (space, id) WHERE lane_open = 1;
CREATE UNIQUE INDEX workflows_on_issues ON workflows (space, issue) WHERE issue_state = 'live';
CREATE INDEX workflows_ledger_pending ON workflows (space, id) WHERE ledger_pending = 1;

CREATE TABLE tasks (
    space      word NOT NULL,
    id         word NOT NULL,
    workflow   word NOT NULL,
    ord        bigint NOT NULL,
    repository word,
    worktree   word,
    created    bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (space, id)
);
CREATE INDEX tasks_by_plan ON tasks (space, workflow, ord, id);
CREATE INDEX tasks_by_time ON tasks (space, created DESC, id DESC);

-- What changes while a task is worked. No index but the key, so that a change touches one page.
CREATE TABLE task_states (
    space         word NOT NULL,
    id            word NOT NULL,
    workflow      word NOT NULL,
    status        word NOT NULL,
    attempt       bigint NOT NULL,
    fence         bigint NOT NULL,
    open_blockers bigint NOT NULL,
    unblocks      bigint NOT NULL,
    not_before    bigint,
    outcome       text,
    updated       bigint NOT NULL,
    PRIMARY KEY (space, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1);

-- The queue: narrow, and apart from what it queues; indexed by what a claim may ask for: workflow, worktree, labels.
-- Tasks that require capabilities stand in lanes of their own. Lanes and ranks are computed in toft-core.
CREATE TABLE queue (
    space    word NOT NULL,
    task     word NOT NULL,
    lane     word NOT NULL,
    rank     word NOT NULL,
    workflow word NOT NULL,
    worktree word,
    -- A JSON array; null without labels.
    labels   text,
    PRIMARY KEY (space, task)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 5000);
CREATE UNIQUE INDEX queue_by_rank ON queue (space, lane, rank);
-- Key and lane in one expression: of a key and a lane apart, the planner would take the index on the lane and read it
-- through, whenever most entries had the same key while it last looked.
CREATE INDEX queue_by_workflow ON queue (space, (workflow || ' ' || lane), rank);
CREATE INDEX queue_by_worktree ON queue (space, (worktree || ' ' || lane), rank) WHERE worktree IS NOT NULL;

CREATE TABLE queue_labels (
    space word NOT NULL,
    label word NOT NULL,
    lane  word NOT NULL,
    rank  word NOT NULL,
    task  word NOT NULL,
    PRIMARY KEY (space, label, lane, rank)
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 5000);

CREATE FUNCTION queue_labels_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM queue_labels
        WHERE space = old.space AND lane = old.lane AND rank = old.rank
            AND label IN (SELECT jsonb_array_elements_text(old.labels::jsonb));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO queue_labels
        SELECT new.space, l.label, new.lane, new.rank, new.task FROM jsonb_array_elements_text(new.labels::jsonb) l (label);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_labels_insert AFTER INSERT ON queue
    FOR EACH ROW WHEN (new.labels IS NOT NULL) EXECUTE FUNCTION queue_labels_follow();
CREATE TRIGGER queue_labels_update AFTER UPDATE ON queue
    FOR EACH ROW WHEN (old.labels IS NOT NULL OR new.labels IS NOT NULL) EXECUTE FUNCTION queue_labels_follow();
CREATE TRIGGER queue_labels_delete AFTER DELETE ON queue
    FOR EACH ROW WHEN (old.labels IS NOT NULL) EXECUTE FUNCTION queue_labels_follow();

-- Nothing in a lane ranks before its newest floor, so that a claim steps over no rows that are gone.
-- A floor is not changed: a newer one is put above it. A row that changes often and must be found fast
-- is kept so, because a reader who comes from the newest end meets no dead version, vacuumed or not.
CREATE TABLE queue_floors (
    space word NOT NULL,
    lane  word NOT NULL,
    n     bigint NOT NULL,
    rank  word NOT NULL,
    PRIMARY KEY (space, lane, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- How many tasks of a workflow have each status, in the order of life; the newest row counts.
CREATE TABLE progress (
    space    word NOT NULL,
    workflow word NOT NULL,
    n        bigint NOT NULL,
    counts   bigint[] NOT NULL,
    PRIMARY KEY (space, workflow, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX progress_failed ON progress (space, workflow) WHERE counts[6] > 0;

CREATE TABLE dependencies (
    space  word NOT NULL,
    task   word NOT NULL,
    target word NOT NULL,
    kind   word NOT NULL,
    PRIMARY KEY (space, task, target, kind)
);
CREATE INDEX dependencies_by_target ON dependencies (space, target, task, kind);

-- Live leases only; ended ones are attempts. No index on what a heartbeat changes.
CREATE TABLE leases (
    space      word NOT NULL,
    task       word NOT NULL,
    workflow   word NOT NULL,
    repository word,
    agent      word NOT NULL,
    fence      bigint NOT NULL,
    lease      word NOT NULL,
    acquired   bigint NOT NULL,
    ttl        bigint NOT NULL,
    cap        bigint NOT NULL,
    renewed    bigint NOT NULL,
    epoch      word NOT NULL,
    tick       bigint NOT NULL,
    check_at   bigint NOT NULL,
    holder     word,
    -- Which machines watch for a renewal, each since when on its own monotonic clock, as JSON.
    seen       text,
    PRIMARY KEY (space, task)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX leases_by_agent ON leases (space, agent);
CREATE INDEX leases_by_workflow ON leases (space, workflow);
-- The next look at a lease is a moment on the wall, whichever machine renewed it.
CREATE INDEX leases_by_check ON leases (space, check_at);
CREATE INDEX leases_by_holder ON leases (space, holder) WHERE holder IS NOT NULL;

CREATE TABLE attempts (
    space      word NOT NULL,
    task       word NOT NULL,
    fence      bigint NOT NULL,
    lease      word NOT NULL,
    agent      word NOT NULL,
    repository word,
    worktree   word,
    started    bigint NOT NULL,
    ended      bigint,
    result     word,
    reason     text,
    cost       double precision,
    -- What a runner saw of it, as JSON.
    report     text,
    PRIMARY KEY (space, task, fence)
) WITH (fillfactor = 70);

CREATE TABLE checkpoints (
    space word NOT NULL,
    task  word NOT NULL,
    seq   bigint NOT NULL,
    body  text NOT NULL,
    PRIMARY KEY (space, task, seq)
);

-- Details of checkpoints too large for a row of their own, by what is in them.
CREATE TABLE blobs (
    space word NOT NULL,
    id    word NOT NULL,
    body  text NOT NULL,
    -- When it was last put down: one that nothing refers to yet may be about to be.
    at    bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    PRIMARY KEY (space, id)
);

CREATE TABLE states (
    space word NOT NULL,
    task  word NOT NULL,
    key   word NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (space, task, key)
);

CREATE TABLE agents (
    space word NOT NULL,
    id    word NOT NULL,
    name  word NOT NULL,
    body  text NOT NULL,
    PRIMARY KEY (space, id)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX agents_by_name ON agents (space, name);

CREATE TABLE messages (
    space word NOT NULL,
    id    word NOT NULL,
    body  text NOT NULL,
    PRIMARY KEY (space, id)
);

CREATE TABLE deliveries (
    space     word NOT NULL,
    recipient word NOT NULL,
    rank      word NOT NULL,
    message   word NOT NULL,
    state     word NOT NULL,
    -- When the message was first shown to its recipient.
    read_at   bigint,
    PRIMARY KEY (space, recipient, rank)
);
CREATE INDEX deliveries_unread ON deliveries (space, recipient, rank) WHERE state = 'queued';

CREATE TABLE gates (
    space      word NOT NULL,
    id         word NOT NULL,
    task       word NOT NULL,
    repository word,
    worktree   word,
    created    bigint NOT NULL,
    unopened   bigint NOT NULL,
    body       text NOT NULL,
    PRIMARY KEY (space, id)
);
CREATE INDEX gates_by_task ON gates (space, task, created, id);
CREATE INDEX gates_unopened ON gates (space, created, id) WHERE unopened = 1;

CREATE TABLE templates (
    space   word NOT NULL,
    name    word NOT NULL,
    version bigint NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (space, name, version)
);

CREATE TABLE events (
    space      word NOT NULL,
    seq        bigint NOT NULL,
    at         bigint NOT NULL,
    actor      text NOT NULL,
    repository word,
    worktree   word,
    entity     word NOT NULL,
    verb       text NOT NULL,
    detail     text NOT NULL,
    op         word NOT NULL,
    part       bigint NOT NULL,
    PRIMARY KEY (space, seq)
);
CREATE INDEX events_by_entity ON events (space, entity, seq);

CREATE TABLE receipts (
    space   word NOT NULL,
    op      word NOT NULL,
    actor   text NOT NULL,
    verb    text NOT NULL,
    outcome text NOT NULL,
    at      bigint NOT NULL,
    -- A digest of what was asked under the operation id.
    request text NOT NULL DEFAULT '',
    PRIMARY KEY (space, op)
);

-- Who waits for news, from when until when; nobody is told anything while nobody waits, and whoever was told
-- waits again a moment later, so that a burst of commits is told once.
CREATE TABLE waiters (
    space word NOT NULL,
    id    word NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (space, id)
) WITH (fillfactor = 50);

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

-- Who may ask a server what: digests of secrets.
CREATE TABLE tokens (
    space  word NOT NULL,
    digest word NOT NULL,
    name   word NOT NULL,
    body   text NOT NULL,
    PRIMARY KEY (space, digest)
);
CREATE INDEX tokens_by_name ON tokens (space, name, digest);
-- A server finds the space of a token by its digest.
CREATE UNIQUE INDEX tokens_by_digest ON tokens (digest);

-- Moves with every commit in a space that a server holds in memory, so that the server sees whether what it holds is still true.
-- A space that no server ever held has no row, and its commits have nothing to do here.
CREATE TABLE space_versions (
    space   word PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- Every statement names its space. Should one not, a session still sees no other space than the one it says it is for.
-- A session that says nothing (psql, an upgrade) sees them all.
DO $$
DECLARE
    named text;
BEGIN
    FOR named IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attname = 'space'
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', named);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', named);
        EXECUTE format(
            'CREATE POLICY own_space ON %I USING (space = coalesce(nullif(current_setting(''toft.space'', true), ''''), space))',
            named
        );
    END LOOP;
END
$$;

CREATE POLICY own_digest ON tokens FOR SELECT USING (digest = current_setting('toft.digest', true));
