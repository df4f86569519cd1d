-- Which machines watch a lease for a renewal, each since when on its own monotonic clock, as JSON.
ALTER TABLE leases ADD COLUMN seen TEXT;
-- A digest of what was asked under an operation id; empty for receipts from before.
ALTER TABLE receipts ADD COLUMN request TEXT NOT NULL DEFAULT '';
-- Workflows whose issue's ledger has to be told something, whether they are over or not.
DROP INDEX workflows_untold;
ALTER TABLE workflows ADD COLUMN ledger_pending INTEGER NOT NULL DEFAULT 0;
UPDATE workflows SET ledger_pending = 1 WHERE issue_state IS NOT NULL;
CREATE INDEX workflows_ledger_pending ON workflows (id) WHERE ledger_pending = 1;
