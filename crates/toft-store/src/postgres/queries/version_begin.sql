-- From now on commits in this space are counted.
INSERT INTO space_versions (space, version) VALUES ($1, 1) ON CONFLICT (space) DO NOTHING
