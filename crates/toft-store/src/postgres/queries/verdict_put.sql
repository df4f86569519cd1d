INSERT INTO verdicts (space, key, repository, flaky, body)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (space, key) DO UPDATE SET
    flaky = excluded.flaky,
    body = excluded.body
