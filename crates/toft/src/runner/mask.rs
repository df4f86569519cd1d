//! Secrets are masked before anything is kept: values of variables that are called so, and what looks like a token.

use std::env;

const MASKED: &str = "[masked]";
/// A shorter value is too likely to be an ordinary word.
const SHORTEST: usize = 8;
/// Names of variables whose values are secret.
const NAMES: [&str; 8] = ["TOKEN", "SECRET", "PASSW", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL", "DATABASE_URL"];
/// How names of such variables end.
const ENDS: [&str; 3] = ["_KEY", "_PASS", "_PAT"];
/// How tokens of well-known services begin, and how many letters follow at least.
const BEGINNINGS: [(&str, usize); 15] = [
    ("sk-", 20),
    ("sk_live_", 10),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("ghu_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AKIA", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("Bearer ", 16),
    ("eyJhbGciOi", 20),
];

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
        for (beginning, least) in BEGINNINGS {
            text = mask_tokens(&text, beginning, least);
        }
        mask_assigned(&text)
    }
}

/// What is assigned to a name that says it is secret: `password=…`, `"token": "…"`.
fn mask_assigned(text: &str) -> String {
    const SIGNS: [&str; 6] = ["password", "passwd", "secret", "token", "api_key", "apikey"];
    let lower = text.to_ascii_lowercase();
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for sign in SIGNS {
        for (at, _) in lower.match_indices(sign) {
            let after = &text[at + sign.len()..];
            let gap = after.len() - after.trim_start_matches(['"', '\'', ' ']).len();
            let Some(value) = after[gap..].strip_prefix(['=', ':']).filter(|_| gap <= 2) else { continue };
            let start = value.len() - value.trim_start_matches(['"', '\'', ' ']).len();
            let end =
                value[start..].find([' ', '"', '\'', ',', ';', '&', ')', '}']).map_or(value.len(), |end| start + end);
            if end - start >= 4 && start <= 3 {
                let from = text.len() - value.len() + start;
                cuts.push((from, from + end - start));
            }
        }
    }
    cuts.sort_unstable();
    let (mut out, mut done) = (String::new(), 0);
    for (from, to) in cuts.into_iter().filter(|(from, to)| !text[*from..*to].contains(MASKED)) {
        if from >= done {
            out.push_str(&text[done..from]);
            out.push_str(MASKED);
            done = to;
        }
    }
    out.push_str(&text[done..]);
    out
}

fn mask_tokens(text: &str, beginning: &str, least: usize) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(beginning) {
        let start = at + beginning.len();
        let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '=');
        let length = rest[start..].find(|c| !inside(c)).unwrap_or(rest.len() - start);
        let own_word = !rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        if length >= least && own_word {
            out.push_str(&rest[..start]);
            out.push_str(MASKED);
        } else {
            out.push_str(&rest[..start + length]);
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
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
