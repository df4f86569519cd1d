DELETE FROM receipts WHERE op IN (SELECT op FROM receipts WHERE at < ?1 LIMIT ?2)
