-- When a blob was last put down: one that nobody refers to yet may be about to be.
ALTER TABLE blobs ADD COLUMN at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
