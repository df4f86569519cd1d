-- When a message was first shown to its recipient.
ALTER TABLE deliveries ADD COLUMN read_at bigint;
