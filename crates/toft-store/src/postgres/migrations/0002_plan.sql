-- Workflows that are on an issue: at most one at a time, and which of those that are over its ledger was not told of.
ALTER TABLE workflows ADD COLUMN issue word;
ALTER TABLE workflows ADD COLUMN issue_state word;
CREATE UNIQUE INDEX workflows_on_issues ON workflows (space, issue) WHERE issue_state = 'live';
CREATE INDEX workflows_untold ON workflows (space, id) WHERE issue_state = 'untold';
