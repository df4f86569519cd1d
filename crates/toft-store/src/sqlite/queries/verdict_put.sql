INSERT INTO verdicts (key, repository, flaky, body)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key) DO UPDATE SET
    flaky = excluded.flaky,
    body = excluded.body
