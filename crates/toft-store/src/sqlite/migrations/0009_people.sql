-- When a message was first shown to its recipient.
ALTER TABLE deliveries ADD COLUMN read_at INTEGER;
-- Ready issues by the agent they are assigned to. All of the index of ledgers is read anew.
DELETE FROM issue_words;
DELETE FROM issue_deps;
DELETE FROM issues;
DELETE FROM ledger_files;
ALTER TABLE issues ADD COLUMN assignee TEXT;
CREATE INDEX issues_assigned ON issues (assignee, rank) WHERE opens IS NOT NULL AND assignee IS NOT NULL;
