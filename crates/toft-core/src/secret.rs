//! Finds secrets in text: known values, tokens of well-known services, values assigned to telling names, passwords in
//! URLs, and private keys. Every search is linear in the length of the text.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// Replacement for a secret.
pub const MASKED: &str = "[masked]";
/// Prefixes of tokens of well-known services, and the minimum number of characters that follow.
const BEGINNINGS: [(&str, usize); 16] = [
    ("sk-", 20),
    ("sk_live_", 10),
    ("ghp_", 20),
    ("toft_", 64),
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
/// Names whose values are secret: `password=…`, `"token": "…"`.
const SIGNS: [&str; 6] = ["password", "passwd", "secret", "token", "api_key", "apikey"];
/// Shortest assigned value that is masked.
const SHORTEST_ASSIGNED: usize = 4;
/// Longest user info of a URL that is examined.
const LONGEST_USER_INFO: usize = 1_024;
const KEY_BEGIN: &[u8] = b"-----BEGIN ";
const KEY_END: &[u8] = b"-----END ";

static TOKENS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(BEGINNINGS.map(|b| b.0)).ok());
static NAMES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(true).build(SIGNS).ok()
});
static MARKS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new([b"://".as_slice(), KEY_BEGIN, KEY_END]).ok());

/// One secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSecret {
    /// Start of the context that identifies the secret; without it the secret would not be recognised.
    pub context: usize,
    /// Start of the secret.
    pub from: usize,
    /// End of the secret.
    pub to: usize,
}

/// Finds secrets, including known values.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    values: Option<AhoCorasick>,
    longest: usize,
}

impl Finder {
    /// Also finds these values. Empty ones are ignored.
    pub fn with_values(values: impl IntoIterator<Item = String>) -> Self {
        let values: Vec<String> = values.into_iter().filter(|value| !value.is_empty()).collect();
        let longest = values.iter().map(String::len).max().unwrap_or(0);
        // Built from a bounded number of short words: the only error is that there are too many.
        let values = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values).ok();
        Self { values: values.filter(|_| longest > 0), longest }
    }

    /// Length of the longest known value.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Every secret in a text, in order, none overlapping another.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Vec<FoundSecret> {
        let mut found = Vec::new();
        if let Some(values) = &self.values {
            let whole = |at: aho_corasick::Match| FoundSecret { context: at.start(), from: at.start(), to: at.end() };
            found.extend(values.find_iter(text).map(whole));
        }
        tokens(text, &mut found);
        assigned(text, &mut found);
        marked(text, &mut found);
        joined(found)
    }

    /// The text without secrets.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        let found = self.find(text.as_bytes());
        if found.is_empty() {
            return text.to_owned();
        }
        String::from_utf8_lossy(&replaced(text.as_bytes(), &found)).into_owned()
    }
}

/// The text with each secret replaced.
#[must_use]
pub fn replaced(text: &[u8], found: &[FoundSecret]) -> Vec<u8> {
    let (mut out, mut done) = (Vec::with_capacity(text.len()), 0);
    for FoundSecret { from, to, .. } in found {
        out.extend_from_slice(&text[done..*from]);
        out.extend_from_slice(MASKED.as_bytes());
        done = *to;
    }
    out.extend_from_slice(&text[done..]);
    out
}

/// The text without what looks like a secret.
#[must_use]
pub fn masked(text: &str) -> String {
    Finder::default().mask(text)
}

/// Is there one in the text?
#[must_use]
pub fn in_text(text: &str) -> bool {
    !Finder::default().find(text.as_bytes()).is_empty()
}

/// Whether this byte ends the value that is assigned to a name.
#[must_use]
pub fn ends_value(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'\'' | b',' | b';' | b'&' | b')' | b'}' | b'\n' | b'\r' | b'\t')
}

/// Whether a line can be part of a private key: base64, a header of it, or empty.
#[must_use]
pub fn in_key(line: &[u8]) -> bool {
    let base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let line = line.trim_ascii();
    line.iter().all(base64) || line.starts_with(b"Proc-Type:") || line.starts_with(b"DEK-Info:")
}

/// Whether a private key begins in this line and does not end in it.
#[must_use]
pub fn opens_key(line: &[u8]) -> bool {
    let begin = find(line, KEY_BEGIN).filter(|at| find(&line[*at..], b"PRIVATE KEY").is_some());
    begin.is_some_and(|at| find(&line[at..], KEY_END).is_none())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn tokens(text: &[u8], found: &mut Vec<FoundSecret>) {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'+' | b'=');
    let mut at = 0;
    let next = |at: usize| TOKENS.as_ref().and_then(|tokens| tokens.find(Input::new(text).span(at..text.len())));
    while let Some(hit) = next(at) {
        let from = hit.end();
        let length = text[from..].iter().position(|byte| !inside(byte)).unwrap_or(text.len() - from);
        let own_word = !hit.start().checked_sub(1).is_some_and(|before| text[before].is_ascii_alphanumeric());
        if own_word && length >= BEGINNINGS[hit.pattern().as_usize()].1 {
            found.push(FoundSecret { context: hit.start(), from, to: from + length });
            at = from + length;
        } else if own_word {
            at = from;
        } else {
            // Inside a word none begins before the word ends.
            at = from + text[from..].iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(length);
        }
    }
}

/// Finds values assigned to names that indicate a secret. The search continues after each match, so that names inside a
/// value cost nothing.
fn assigned(text: &[u8], found: &mut Vec<FoundSecret>) {
    let gap = |from: usize| text[from..].iter().take_while(|byte| matches!(byte, b'"' | b'\'' | b' ')).take(4).count();
    let mut at = 0;
    let next = |at: usize| NAMES.as_ref().and_then(|names| names.find(Input::new(text).span(at..text.len())));
    while let Some(hit) = next(at) {
        at = hit.end();
        let before = gap(at);
        if before > 2 || !matches!(text.get(at + before), Some(b'=' | b':')) {
            continue;
        }
        let after = gap(at + before + 1);
        let from = at + before + 1 + after;
        let length = text[from..].iter().position(|byte| ends_value(*byte)).unwrap_or(text.len() - from);
        if after <= 3 && length >= SHORTEST_ASSIGNED {
            at = from + length;
            if !text[from..at].starts_with(MASKED.as_bytes()) {
                found.push(FoundSecret { context: hit.start(), from, to: at });
            }
        }
    }
}

/// Passwords in URLs, and private keys.
fn marked(text: &[u8], found: &mut Vec<FoundSecret>) {
    let mut key = None;
    for hit in MARKS.iter().flat_map(|marks| marks.find_iter(text)) {
        match hit.pattern().as_usize() {
            0 => found.extend(password(text, hit.start(), hit.end())),
            1 => {
                let line = &text[hit.end()..text.len().min(hit.end() + 64)];
                let name = line.iter().position(|byte| *byte == b'\n').map_or(line, |end| &line[..end]);
                if let Some(kind) = find(name, b"PRIVATE KEY-----") {
                    key.get_or_insert((hit.start(), hit.end() + kind + b"PRIVATE KEY-----".len()));
                }
            }
            _ => {
                if let Some((context, from)) = key.take().filter(|(_, from)| *from < hit.start()) {
                    found.push(FoundSecret { context, from, to: hit.start() });
                }
            }
        }
    }
    if let Some((context, from)) = key.filter(|(_, from)| *from < text.len()) {
        // It has not ended: what can be part of it is.
        let rest = &text[from..];
        let lines = rest.split_inclusive(|byte| *byte == b'\n').take_while(|line| in_key(line)).map(<[u8]>::len);
        let to = from + lines.sum::<usize>();
        if text[from..to].iter().any(|byte| !byte.is_ascii_whitespace()) {
            found.push(FoundSecret { context, from, to });
        }
    }
}

/// The password of a URL whose `://` is here: `scheme://user:password@host`.
fn password(text: &[u8], context: usize, from: usize) -> Option<FoundSecret> {
    let rest = &text[from..text.len().min(from + LONGEST_USER_INFO)];
    let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'"' | b'\'' | b'<' | b'>' | b'`');
    let rest = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
    let at = rest.iter().rposition(|byte| *byte == b'@')?;
    let colon = rest[..at].iter().position(|byte| *byte == b':')?;
    let (from, to) = (from + colon + 1, from + at);
    let known = text[from..to].starts_with(MASKED.as_bytes());
    (to > from && !known).then_some(FoundSecret { context, from, to })
}

/// Sorts the findings and merges those that overlap.
fn joined(mut found: Vec<FoundSecret>) -> Vec<FoundSecret> {
    found.sort_unstable_by_key(|found| (found.from, found.to));
    let mut joined: Vec<FoundSecret> = Vec::with_capacity(found.len());
    for one in found {
        match joined.last_mut() {
            Some(last) if one.from < last.to => {
                last.to = last.to.max(one.to);
                last.context = last.context.min(one.context);
            }
            _ => joined.push(one),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_and_private_keys_are_masked() {
        for (text, shown) in [
            ("clone https://ana:s3cret@example.org/x now", "clone https://ana:[masked]@example.org/x now"),
            ("postgres://u:p%40ss@h:5432/db?x=1", "postgres://u:[masked]@h:5432/db?x=1"),
            ("see https://example.org/a:b@c and http://h:80/", "see https://example.org/a:b@c and http://h:80/"),
            ("https://user@example.org", "https://user@example.org"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEabc+/=\nx0==\n-----END RSA PRIVATE KEY-----\nb",
                "a\n-----BEGIN RSA PRIVATE KEY-----[masked]-----END RSA PRIVATE KEY-----\nb",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMIIE\nthat was it", "-----BEGIN PRIVATE KEY-----[masked]that was it"),
            ("-----BEGIN CERTIFICATE-----\nMIIE\n-----END", "-----BEGIN CERTIFICATE-----\nMIIE\n-----END"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }

    #[test]
    fn masking_again_changes_nothing() {
        for text in ["token=abcdefgh x", "a://b:c@d", "password: \"xyz12\", ghp_aaaaaaaaaaaaaaaaaaaaaaaaa"] {
            let once = masked(text);
            assert_eq!(masked(&once), once);
            assert_ne!(once, text);
        }
    }

    #[test]
    fn what_overlaps_is_masked_once() {
        let finder = Finder::with_values(["hunter2hunter2".into(), "hunter2hunter2-more".into(), String::new()]);
        assert_eq!(finder.mask("x hunter2hunter2-more y"), "x [masked] y");
        assert_eq!(finder.mask("token=hunter2hunter2;"), "token=[masked];");
    }
}
