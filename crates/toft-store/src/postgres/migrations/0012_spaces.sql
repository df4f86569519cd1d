-- A server finds the space of a token by its digest.
CREATE UNIQUE INDEX tokens_by_digest ON tokens (digest);

-- Moves with every commit in a space that a server holds in memory, so that the server sees whether what it holds is still true.
-- A space that no server ever held has no row, and its commits have nothing to do here.
CREATE TABLE space_versions (
    space   word PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);

-- Every statement names its space. Should one not, a session still sees no other space than the one it says it is for.
-- A session that says nothing (psql, an upgrade) sees them all.
DO $$
DECLARE
    named text;
BEGIN
    FOR named IN
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attname = 'space'
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', named);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', named);
        EXECUTE format(
            'CREATE POLICY own_space ON %I USING (space = coalesce(nullif(current_setting(''toft.space'', true), ''''), space))',
            named
        );
    END LOOP;
END
$$;

CREATE POLICY own_digest ON tokens FOR SELECT USING (digest = current_setting('toft.digest', true));
