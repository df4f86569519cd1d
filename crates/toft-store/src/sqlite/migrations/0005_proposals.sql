-- What an issue is to whoever sees it in a ledger: its own, offered by somebody, or another ledger's. All of the index is
-- read anew.
DELETE FROM issue_words;
DELETE FROM issue_deps;
DELETE FROM issues;
DELETE FROM ledger_files;
ALTER TABLE issues ADD COLUMN part TEXT NOT NULL DEFAULT '';
