-- What a runner saw of an attempt, as JSON.
ALTER TABLE attempts ADD COLUMN report text;
