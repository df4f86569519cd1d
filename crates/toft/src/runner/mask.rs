//! Secrets are masked before anything is kept: values of variables that are called so, and what looks like a token.

use std::env;

use toft_core::secret::{self, MASKED};

/// A shorter value is too likely to be an ordinary word.
const SHORTEST: usize = 8;
/// Names of variables whose values are secret.
const NAMES: [&str; 8] = ["TOKEN", "SECRET", "PASSW", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL", "DATABASE_URL"];
/// How names of such variables end.
const ENDS: [&str; 3] = ["_KEY", "_PASS", "_PAT"];
/// What is secret here.
pub(crate) struct Mask {
    values: Vec<String>,
}

impl Mask {
    /// From this process's environment, and whatever else is known to be secret.
    pub(crate) fn from_environment(more: impl IntoIterator<Item = String>) -> Self {
        let secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            NAMES.iter().any(|sign| name.contains(sign)) || ENDS.iter().any(|end| name.ends_with(end))
        };
        let found = env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            secret(&name).then_some(value)
        });
        Self::of(found.chain(more))
    }

    fn of(values: impl IntoIterator<Item = String>) -> Self {
        // A value is said line by line, and in JSON with its slashes marked.
        let lines = values.into_iter().flat_map(|value| value.lines().map(str::to_owned).collect::<Vec<_>>());
        let forms = lines.flat_map(|line| [line.replace('/', "\\/"), line]);
        let mut values: Vec<String> = forms.filter(|value| value.trim().len() >= SHORTEST).collect();
        // A value that contains another is masked first.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self { values }
    }

    /// The text without secrets.
    pub(crate) fn mask(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), MASKED);
            }
        }
        secret::masked(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_tokens_are_masked_and_ordinary_words_are_not() {
        let mask = Mask::of(["hunter2hunter2".to_owned(), "short".to_owned(), "first/line1\nsecond-line".to_owned()]);
        assert_eq!(mask.mask(r"say first\/line1 and second-line"), "say [masked] and [masked]");
        assert_eq!(mask.mask("pw=hunter2hunter2 short"), "pw=[masked] short");
        let token = format!("ghp_{}", "a1B2".repeat(9));
        assert_eq!(mask.mask(&format!("push with {token} now")), "push with ghp_[masked] now");
        assert_eq!(mask.mask(&format!("key sk-ant-{}", "x".repeat(30))), "key sk-[masked]");
        assert_eq!(mask.mask("login with password=hunter2 now"), "login with password=[masked] now");
        assert_eq!(mask.mask(r#"{"api_key": "abcd1234", "n": 1}"#), r#"{"api_key": "[masked]", "n": 1}"#);
        assert_eq!(mask.mask("DB_PASSWORD=päss1 TOKEN=[masked]"), "DB_PASSWORD=[masked] TOKEN=[masked]");
        for fine in [
            "tokens: 12",
            "the secret of it",
            "token budget",
            "secret = x",
            "task-1 is done",
            "risk-averse",
            "the ghp_ prefix",
            "Bearer of news",
            "AKIA",
        ] {
            assert_eq!(mask.mask(fine), fine);
        }
    }
}
