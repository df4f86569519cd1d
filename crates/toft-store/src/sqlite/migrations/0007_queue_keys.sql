-- The queue is indexed by what a claim may ask for: workflow, worktree, labels. Tasks that require capabilities
-- stand in lanes of their own. Lanes and keys are computed in toft-core; this fills them in for what is queued.
ALTER TABLE task_states ADD COLUMN worktree TEXT;
-- A JSON array; null without labels.
ALTER TABLE task_states ADD COLUMN labels TEXT;

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

UPDATE task_states
SET lane = lane || '+' || (
    SELECT json_group_array(tag ORDER BY tag)
    FROM (SELECT DISTINCT r.value AS tag FROM tasks t, json_each(t.body, '$.requires') r WHERE t.id = task_states.id)
)
WHERE lane NOT LIKE '%~'
    AND EXISTS (SELECT 1 FROM tasks t, json_each(t.body, '$.requires') WHERE t.id = task_states.id);
UPDATE task_states
SET worktree = (SELECT t.worktree FROM tasks t WHERE t.id = task_states.id),
    labels = (
        SELECT nullif(json_group_array(label ORDER BY label), '[]')
        FROM (SELECT DISTINCT l.value AS label FROM tasks t, json_each(t.body, '$.labels') l WHERE t.id = task_states.id)
    )
WHERE lane IS NOT NULL;

CREATE INDEX task_states_queue_by_workflow ON task_states (workflow, lane, rank) WHERE lane IS NOT NULL;
-- Most tasks are of the main worktree, and an index costs every claim a page: its tasks are found in their lane.
CREATE INDEX task_states_queue_by_worktree ON task_states (worktree, lane, rank)
WHERE lane IS NOT NULL AND worktree <> 'main';
