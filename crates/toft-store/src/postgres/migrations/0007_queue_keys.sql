-- The queue is indexed by what a claim may ask for: workflow, worktree, labels. Tasks that require capabilities
-- stand in lanes of their own. Lanes and keys are computed in toft-core; this fills them in for what is queued.
ALTER TABLE queue ADD COLUMN workflow word, ADD COLUMN worktree word, ADD COLUMN labels text;

UPDATE queue q
SET workflow = t.workflow,
    worktree = t.worktree,
    labels = (
        SELECT '[' || string_agg(to_json(label)::text, ',' ORDER BY label COLLATE "C") || ']'
        FROM (SELECT DISTINCT l.label FROM jsonb_array_elements_text(t.body::jsonb -> 'labels') l (label)) d
    ),
    lane = q.lane || CASE WHEN q.lane LIKE '%~' THEN '' ELSE coalesce((
        SELECT '+[' || string_agg(to_json(tag)::text, ',' ORDER BY tag COLLATE "C") || ']'
        FROM (SELECT DISTINCT r.tag FROM jsonb_array_elements_text(t.body::jsonb -> 'requires') r (tag)) d
    ), '') END
FROM tasks t
WHERE t.space = q.space AND t.id = q.task;
-- An entry without a task was never offered.
DELETE FROM queue WHERE workflow IS NULL;
ALTER TABLE queue ALTER COLUMN workflow SET NOT NULL;

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
INSERT INTO queue_labels
SELECT q.space, l.label, q.lane, q.rank, q.task FROM queue q, jsonb_array_elements_text(q.labels::jsonb) l (label);

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
