-- The index of ledgers is beside the checkout; a server has nothing to change.
SELECT 1;
