-- Blobs are files here, which have times; a file has nothing to change.
SELECT 1;
