//! Masks secrets before anything is stored: values of variables whose names indicate a secret, and text that looks like
//! a token.

use std::env;

use percent_encoding::percent_decode_str;
use toft_core::secret::{Finder, FoundSecret, MASKED, ends_value, in_key, opens_key, replaced};

/// A shorter value is probably an ordinary word.
const SHORTEST: usize = 8;
/// Shortest password of a store that is masked everywhere.
const SHORTEST_PASSWORD: usize = 5;
/// Names of variables whose values are secret.
const NAMES: [&str; 8] = ["TOKEN", "SECRET", "PASSW", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL", "DATABASE_URL"];
/// Suffixes of the names of such variables.
const ENDS: [&str; 3] = ["_KEY", "_PASS", "_PAT"];
/// A longer line is passed on in pieces.
pub const PIECE: usize = 64 << 10;
/// Maximum part of a piece that is held back for the next one.
const LONGEST_TAIL: usize = PIECE / 2;
/// Minimum part of a piece that is held back: a token could begin in it.
const SHORTEST_TAIL: usize = 2 << 10;
/// Maximum number of lines of a private key.
const KEY_LINES: usize = 200;

/// The secrets to mask.
#[derive(Clone)]
pub struct Mask {
    finder: Finder,
}

impl Mask {
    /// Secrets of this process's environment, and of the addresses of stores, which may contain passwords.
    pub fn from_environment<'u>(stores: impl IntoIterator<Item = &'u str>) -> Self {
        let secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            NAMES.iter().any(|sign| name.contains(sign)) || ENDS.iter().any(|end| name.ends_with(end))
        };
        let found = env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            secret(&name).then_some(value)
        });
        let named = env::var("TOFT_STORE").ok();
        let stores = stores.into_iter().map(str::to_owned).chain(named).filter(|text| text.contains("://"));
        let stores: Vec<String> = stores.collect();
        let passwords: Vec<String> = stores.iter().flat_map(|url| passwords(url)).collect();
        let whole = stores.iter().filter(|_| !passwords.is_empty()).cloned();
        Self::of(found.chain(whole), passwords.clone())
    }

    fn of(values: impl IntoIterator<Item = String>, passwords: Vec<String>) -> Self {
        // A value is said line by line, and in JSON with quotes, backslashes and perhaps slashes marked.
        let lines = values.into_iter().flat_map(|value| value.lines().map(str::to_owned).collect::<Vec<_>>());
        let in_json = |line: &str| {
            let quoted = serde_json::Value::from(line).to_string();
            quoted[1..quoted.len() - 1].to_owned()
        };
        let forms = lines.flat_map(|line| [line.replace('/', "\\/"), in_json(&line), line]);
        let values = forms.filter(|value| value.trim().len() >= SHORTEST);
        let passwords = passwords.into_iter().filter(|password| password.len() >= SHORTEST_PASSWORD);
        Self { finder: Finder::with_values(values.chain(passwords)) }
    }

    /// The text without secrets.
    pub fn mask(&self, text: &str) -> String {
        self.finder.mask(text)
    }
}

/// Text of a runner's agent about its work, without secrets. Text of people is not changed.
pub fn masked_in_attempt(text: &str) -> String {
    match env::var_os(crate::person::MARK) {
        Some(_) => Mask::from_environment(None).mask(text),
        None => text.to_owned(),
    }
}

/// The password in the address of a store: as written there, and decoded.
fn passwords(url: &str) -> Vec<String> {
    let info = url.split_once("://").map_or("", |(_, rest)| rest);
    let info = info.split('/').next().unwrap_or_default();
    let in_info = info.rsplit_once('@').and_then(|(info, _)| info.split_once(':')).map(|(_, password)| password);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let in_query = query.split('&').find_map(|pair| pair.strip_prefix("password="));
    in_info.into_iter().chain(in_query).flat_map(|written| [written.to_owned(), decoded(written)]).collect()
}

/// Percent-decodes a part of a URL.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Masks a stream: a secret that begins in one piece and ends in the next is masked, too.
#[derive(Default)]
pub struct Stream {
    /// Text that was received but not passed on: less than a line.
    held: Vec<u8>,
    /// The rest of a long secret is still to come.
    inside: bool,
    /// Number of lines that may still belong to a private key.
    key: usize,
}

impl Stream {
    /// Receives bytes and passes whole lines on, masked and without line ends; a long line in pieces.
    pub fn take(&mut self, mask: &Mask, mut came: &[u8], mut pass: impl FnMut(String)) {
        while !came.is_empty() {
            let end = came.iter().position(|byte| *byte == b'\n').map_or(came.len(), |at| at + 1);
            let part = end.min(PIECE.saturating_sub(self.held.len()).max(1));
            self.held.extend_from_slice(&came[..part]);
            came = &came[part..];
            if self.held.ends_with(b"\n") {
                self.end(mask, &mut pass);
            } else if self.held.len() >= PIECE {
                let piece = self.piece(mask);
                pass(piece);
            }
        }
    }

    /// Passes on the held text as a line.
    pub fn end(&mut self, mask: &Mask, mut pass: impl FnMut(String)) {
        if self.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let mut line = held.as_slice();
        while let Some(shorter) = line.strip_suffix(b"\n").or_else(|| line.strip_suffix(b"\r")) {
            line = shorter;
        }
        let rest = self.after_secret(line);
        self.inside = false;
        if self.key > 0 && in_key(rest) {
            self.key -= 1;
            pass(if rest.trim_ascii().is_empty() { String::new() } else { MASKED.to_owned() });
            return;
        }
        self.key = if opens_key(rest) { KEY_LINES } else { 0 };
        let found = mask.finder.find(rest);
        pass(String::from_utf8_lossy(&replaced(rest, &found)).into_owned());
    }

    /// The text after the end of a secret that began in an earlier piece.
    fn after_secret<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        match self.inside {
            true => &text[text.iter().position(|byte| ends_value(*byte)).unwrap_or(text.len())..],
            false => text,
        }
    }

    /// The part of an unfinished line that certainly contains no part of a secret.
    fn piece(&mut self, mask: &Mask) -> String {
        let held = std::mem::take(&mut self.held);
        let text = self.after_secret(&held);
        self.inside &= text.is_empty();
        let found = mask.finder.find(text);
        let tail = mask.finder.longest().clamp(SHORTEST_TAIL, LONGEST_TAIL);
        let mut cut = text.len().saturating_sub(tail);
        if let Some(FoundSecret { context, to, .. }) = found.iter().find(|found| found.context < cut && found.to > cut)
        {
            // One that is longer than what may wait is masked now, and so is what follows of it.
            self.inside = text.len() - context > LONGEST_TAIL && *to == text.len();
            cut = if text.len() - context > LONGEST_TAIL { *to } else { *context };
        }
        // Not inside of a character.
        while cut > 0 && cut < text.len() && text[cut] & 0b1100_0000 == 0b1000_0000 {
            cut -= 1;
        }
        let found: Vec<FoundSecret> = found.into_iter().filter(|found| found.to <= cut).collect();
        let shown = String::from_utf8_lossy(&replaced(&text[..cut], &found)).into_owned();
        self.held = text[cut..].to_vec();
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> Mask {
        let values = ["hunter2hunter2", "short", "first/line1\nsecond-line"];
        Mask::of(values.map(str::to_owned), vec!["s3cPw".into(), "pw".into()])
    }

    #[test]
    fn values_and_tokens_are_masked_and_ordinary_words_are_not() {
        let mask = mask();
        assert_eq!(mask.mask(r"say first\/line1 and second-line"), "say [masked] and [masked]");
        assert_eq!(mask.mask("pw=hunter2hunter2 short"), "pw=[masked] short");
        assert_eq!(mask.mask("alone s3cPw"), "alone [masked]");
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

    #[test]
    fn the_password_of_a_store_is_known_however_it_is_written() {
        assert_eq!(passwords("postgres://ana:p%40ss@h/db"), ["p%40ss", "p@ss"]);
        assert_eq!(passwords("postgres://h/db?user=x&password=abc"), ["abc", "abc"]);
        assert!(passwords("postgres://ana@h/db").is_empty());
    }

    /// However the reads are split, no more than a few letters of a secret are passed on.
    #[test]
    fn a_secret_is_masked_wherever_reads_divide_it() {
        let mask = mask();
        for before in [0, 10, PIECE - 20, PIECE - 1, PIECE, PIECE + 7, 2 * PIECE - 9] {
            for size in [1, 7, 4_096, PIECE] {
                let text = format!("{} hunter2hunter2 and token=abcdefgh rest\nnext\n", "x".repeat(before));
                let (mut stream, mut out) = (Stream::default(), Vec::new());
                for part in text.as_bytes().chunks(size) {
                    stream.take(&mask, part, |line| out.push(line));
                }
                let whole = out.concat();
                assert!(!whole.contains("hunter2h") && !whole.contains("abcd"), "{before} {size}");
                assert!(whole.contains(" and token=[masked] rest") && out.last().unwrap() == "next", "{before} {size}");
                assert_eq!(whole.matches('x').count(), before + 1, "nothing else is lost: {before} {size}");
            }
        }
    }

    #[test]
    fn a_secret_longer_than_anything_that_waits_is_masked_to_its_end() {
        let text = format!("token={} over\n", "a".repeat(5 * PIECE));
        let (mut stream, mut out) = (Stream::default(), String::new());
        text.as_bytes().chunks(1_000).for_each(|part| stream.take(&mask(), part, |line| out.push_str(&line)));
        assert_eq!(out, "token=[masked] over");
    }

    #[test]
    fn a_private_key_is_masked_line_by_line() {
        let text = "a\n-----BEGIN EC PRIVATE KEY-----\nMIIabc=\n\nMxx\n-----END EC PRIVATE KEY-----\nplain words\n";
        let (mut stream, mut out) = (Stream::default(), Vec::new());
        stream.take(&mask(), text.as_bytes(), |line| out.push(line));
        assert_eq!(out[2..5], [MASKED, "", MASKED]);
        assert_eq!(out[6], "plain words");
    }
}
