//! What may be sent to other clones, and what needs a confirmation first.

use std::fmt;

use serde_json::Value;

use super::{
    Issue,
    proposal::{LOCAL, PROPOSED, ProposalSide},
};
use crate::secret::Finder;

/// More issues than this at once are probably a mistake.
const BULK: usize = 100;
/// A line longer than this was probably not written by hand.
const LONG: usize = 64 << 10;
/// Maximum number of long lines that are listed.
const NAMED: usize = 5;
/// Maximum number of secrets that are listed.
const FINDINGS: usize = 50;

/// Why a line may not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// It is private.
    Private,
    /// It is not proposed, and the sender does not maintain the ledger.
    NotProposed,
    /// It changes an issue that the other side maintains.
    NotYours,
}

impl Leak {
    /// In words.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Private => "is private",
            Self::NotProposed => "was not proposed",
            Self::NotYours => "belongs to the other side",
        }
    }
}

/// Whether an issue that a commit adds or changes may leave, by the rule of proposals. `private` means that a private ledger has it, `before` is
/// the issue as the other side has it, `keeper` whether whoever sends it keeps the ledger.
#[must_use]
pub fn leak(issue: &Issue, private: bool, before: Option<&Issue>, keeper: bool) -> Option<Leak> {
    let proposed = issue.visibility.as_deref() == Some(PROPOSED);
    match before {
        _ if issue.visibility.as_deref() == Some(LOCAL) => Some(Leak::Private),
        _ if private && !proposed => Some(Leak::Private),
        _ if keeper => None,
        Some(before) if ProposalSide::of(before) != ProposalSide::Offered => Some(Leak::NotYours),
        _ => (!proposed).then_some(Leak::NotProposed),
    }
}

/// Text that looks like a secret, in data that is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Identifies this secret in this issue, wherever it is found again. Reveals nothing about the secret.
    pub id: String,
    pub issue: String,
    /// The field that contains it; empty if unknown.
    pub field: String,
}

/// A finding that needs a confirmation before sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Very many issues at once.
    Bulk(usize),
    /// A very long line.
    Long(String, usize),
    /// Text that looks like a secret. It is sent only if the user allows this finding by its id.
    Secret(Finding),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bulk(count) => write!(f, "{count} issues at once"),
            Self::Long(id, bytes) => write!(f, "{id} is {} KiB long", bytes >> 10),
            Self::Secret(Finding { id, issue, field }) if field.is_empty() => {
                write!(f, "{issue} has something in it that looks like a secret (finding {id})")
            }
            Self::Secret(Finding { id, issue, field }) => {
                write!(f, "{field} of {issue} has something in it that looks like a secret (finding {id})")
            }
        }
    }
}

/// The findings in lines that are about to be sent, each with its id. `allowed` findings are skipped.
pub fn doubts<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>, allowed: impl Fn(&str) -> bool) -> Vec<Doubt> {
    let (mut long, mut secrets, mut ids) = (Vec::new(), Vec::new(), std::collections::HashSet::new());
    for (id, line) in lines {
        ids.insert(id);
        if long.len() < NAMED && line.len() > LONG {
            long.push(Doubt::Long(id.to_owned(), line.len()));
        }
        if secrets.len() < FINDINGS {
            let found = findings(id, line).into_iter().filter(|finding| !allowed(&finding.id)).map(Doubt::Secret);
            secrets.extend(found.filter(|doubt| !secrets.contains(doubt)).collect::<Vec<_>>());
        }
    }
    let bulk = (ids.len() > BULK).then_some(Doubt::Bulk(ids.len()));
    bulk.into_iter().chain(long).chain(secrets).collect()
}

/// Everything in a line that looks like a secret. Texts are read as a reader of the issue sees them.
#[must_use]
pub fn findings(issue: &str, line: &str) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let finder = Finder::default();
    let mut look = |field: &str, text: &str| {
        for at in finder.find(text.as_bytes()) {
            let id = fingerprint(issue, &text.as_bytes()[at.from..at.to]);
            if !found.iter().any(|known| known.id == id) {
                found.push(Finding { id, issue: issue.to_owned(), field: field.to_owned() });
            }
        }
    };
    if let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(line) {
        for (name, value) in &fields {
            texts(value, &mut |text| look(name, text));
        }
    }
    // Names and values together, and lines that are none.
    look("", line);
    found
}

/// Every text in a value.
fn texts(value: &Value, look: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, look)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, look)),
        _ => {}
    }
}

/// The id of a secret in an issue: 64-bit FNV-1a.
fn fingerprint(issue: &str, secret: &[u8]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = issue.as_bytes().iter().chain(&[0]).chain(secret).fold(0xcbf2_9ce4_8422_2325, step);
    format!("{hash:016x}")[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_field_and_named_without_being_told() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let key = "-----BEGIN PRIVATE KEY-----\\nMIIEabcd\\n";
        for (line, field) in [
            (format!("{{\"id\":\"tf-1\",\"body\":\"x {token}\"}}"), "body"),
            (format!("{{\"id\":\"tf-1\",\"comments\":[{{\"id\":\"c\",\"text\":\"{token}\"}}]}}"), "comments"),
            (format!("{{\"id\":\"tf-1\",\"notes\":\"{key}\"}}"), "notes"),
            ("{\"id\":\"tf-1\",\"meta\":{\"password\":\"hunter22\"}}".to_owned(), ""),
            (format!("no line at all {token}"), ""),
        ] {
            let found = findings("tf-1", &line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert_eq!(found[0].field, field, "{line}");
            let said = Doubt::Secret(found[0].clone()).to_string();
            assert!(!said.contains(&token) && !said.contains("hunter22"), "{said}");
            let allowed = |id: &str| id == found[0].id;
            assert!(doubts([("tf-1", line.as_str())].into_iter(), allowed).is_empty());
        }
        assert!(findings("tf-1", "{\"id\":\"tf-1\",\"title\":\"Rotate the token of ana\"}").is_empty());
    }
}
