//! What may leave for where others see it, and what is worth a question first.

use std::fmt;

use super::{
    Issue,
    proposal::{LOCAL, PROPOSED, Part},
};
use crate::secret;

/// More issues at once are a mistake more often than not.
const BULK: usize = 100;
/// A longer line is more than anybody writes by hand.
const LONG: usize = 64 << 10;
/// How many doubts of a kind are named.
const NAMED: usize = 5;

/// Why a line may not leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leak {
    /// It is private.
    Private,
    /// It is not proposed, and whoever sends it does not keep the ledger.
    NotProposed,
    /// It changes an issue that is the other side's.
    NotYours,
}

impl Leak {
    /// In words.
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
pub fn leak(issue: &Issue, private: bool, before: Option<&Issue>, keeper: bool) -> Option<Leak> {
    let proposed = issue.visibility.as_deref() == Some(PROPOSED);
    match before {
        _ if issue.visibility.as_deref() == Some(LOCAL) => Some(Leak::Private),
        _ if private && !proposed => Some(Leak::Private),
        _ if keeper => None,
        Some(before) if Part::of(before) != Part::Offered => Some(Leak::NotYours),
        _ => (!proposed).then_some(Leak::NotProposed),
    }
}

/// Something that is asked about before it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Very many issues at once.
    Bulk(usize),
    /// A very long line.
    Long(String, usize),
    /// Something in it looks like a secret.
    Secret(String),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bulk(count) => write!(f, "{count} issues at once"),
            Self::Long(id, bytes) => write!(f, "{id} is {} KiB long", bytes >> 10),
            Self::Secret(id) => write!(f, "{id} has something in it that looks like a secret"),
        }
    }
}

/// What is doubtful about lines that are about to leave, each with its id.
pub fn doubts<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Doubt> {
    let (mut doubts, mut count) = (Vec::new(), 0);
    for (id, line) in lines {
        count += 1;
        if doubts.len() < NAMED && line.len() > LONG {
            doubts.push(Doubt::Long(id.to_owned(), line.len()));
        }
        if doubts.len() < NAMED && secret::in_text(line) {
            doubts.push(Doubt::Secret(id.to_owned()));
        }
    }
    if count > BULK {
        doubts.insert(0, Doubt::Bulk(count));
    }
    doubts
}
