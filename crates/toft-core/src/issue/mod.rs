//! Issues: things to do, as the plan has them. They live in ledgers; a store only has an index of them.
//!
//! [`ready`] is the rule for what can start, [`edit`] what may be written, [`epic`] what follows for epics, [`chain`] the critical path, [`proposal`] how one ledger's issue becomes
//! another's, [`overlay`] what is laid over one that others keep, [`outgoing`] what may leave,
//! [`private`] what is looked for in it.

pub mod chain;
pub mod edit;
pub mod epic;
pub mod filter;
pub mod outgoing;
pub mod overlay;
pub mod private;
pub mod proposal;
pub mod ready;
pub mod route;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{id::IdGenerator, time::Timestamp};

/// What every id made here starts with. Others are taken as they are.
pub const PREFIX: &str = "tf-";

/// How many characters follow it.
pub const WORD: usize = 16;

/// A new id: 80 random bits in Crockford's alphabet.
pub fn generate_id(ids: &mut IdGenerator) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut bits = u128::from(ids.number()) << 64 | u128::from(ids.number());
    let word: String = (0..WORD)
        .map(|_| {
            let digit = (bits % 32) as usize;
            bits /= 32;
            ALPHABET[digit] as char
        })
        .collect();
    format!("{PREFIX}{word}")
}

/// One thing to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// Stable id, the same in every ledger.
    pub id: String,
    /// What is to be done.
    #[serde(default)]
    pub title: String,
    /// task, bug, feature, epic, chore, decision, or any word.
    #[serde(default = "task", rename = "type")]
    pub kind: String,
    /// open, in_progress, deferred, closed.
    #[serde(default = "open")]
    pub status: String,
    /// 0 is most urgent.
    #[serde(default = "middle")]
    pub priority: u8,
    /// Plain labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What it needs, and what it is related to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deps: Vec<Dep>,
    /// Who works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who wrote it down, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Stamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
    /// Not before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_until: Option<Timestamp>,
    /// Not after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// How it is meant to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<String>,
    /// What shows that it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// What was said about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<Comment>,
    /// The template its workflow is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// local, proposed, overlay; absent, everybody is meant to see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// Where it was proposed from, or to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// It was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Deleted>,
}

fn task() -> String {
    "task".to_owned()
}

fn open() -> String {
    OPEN.to_owned()
}

fn middle() -> u8 {
    2
}

/// Not started.
pub const OPEN: &str = "open";
/// Somebody is on it.
pub const IN_PROGRESS: &str = "in_progress";
/// Put off.
pub const DEFERRED: &str = "deferred";
/// Over.
pub const CLOSED: &str = "closed";
/// An issue that consists of others.
pub const EPIC: &str = "epic";
/// The label that keeps an issue from being claimed by whoever asks for anything.
pub const NO_AUTO_CLAIM: &str = "no-auto-claim";

impl Issue {
    /// Whether it is claimed only by its id: it is labelled so, or it is an epic that nobody was assigned to.
    #[must_use]
    pub fn only_by_name(&self) -> bool {
        self.labels.iter().any(|label| label == NO_AUTO_CLAIM) || self.kind == EPIC && self.assignee.is_none()
    }

    /// Reads an issue from a line of JSON. Fields that have a wrong value are left out, each with the problem.
    pub fn read(line: &str) -> Result<(Self, Vec<(String, String)>), serde_json::Error> {
        if let Ok(issue) = serde_json::from_str(line) {
            return Ok((issue, Vec::new()));
        }
        let mut fields: serde_json::Map<String, Value> = serde_json::from_str(line)?;
        let (id, mut wrong) = (fields.get("id").cloned().unwrap_or_default(), Vec::new());
        fields.retain(|name, value| {
            let alone = Value::from_iter([("id".to_owned(), id.clone()), (name.clone(), value.clone())]);
            match Self::deserialize(alone) {
                Ok(_) => true,
                Err(error) => {
                    wrong.push((name.clone(), error.to_string()));
                    false
                }
            }
        });
        Ok((serde_json::from_value(Value::Object(fields))?, wrong))
    }

    /// Is it still to be done?
    #[must_use]
    pub fn unfinished(&self) -> bool {
        self.status != CLOSED && self.deleted.is_none()
    }

    /// When it was written down.
    #[must_use]
    pub fn written(&self) -> Timestamp {
        self.created.as_ref().map(|created| created.at).unwrap_or_default()
    }

    /// What holds it back until it is closed.
    pub fn blockers(&self) -> impl Iterator<Item = &str> {
        self.deps.iter().filter(|dep| dep.blocks()).map(|dep| dep.on.as_str())
    }
}

/// One issue needs another, or is related to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dep {
    /// The other.
    pub on: String,
    /// blocks, conditional, related, discovered-from, duplicates, supersedes, or any word.
    pub kind: String,
}

/// The kind that holds back.
pub const BLOCKS: &str = "blocks";
/// The kind that says on what something was found.
pub const DISCOVERED_FROM: &str = "discovered-from";

impl Dep {
    /// Does it hold back until the other is closed?
    #[must_use]
    pub fn blocks(&self) -> bool {
        [BLOCKS, "conditional"].contains(&self.kind.as_str())
    }
}

/// Who, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stamp {
    /// When.
    pub at: Timestamp,
    /// Who.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// How an issue ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closed {
    /// When.
    pub at: Timestamp,
    /// Who said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why, or how.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Value>,
    /// An epic that closed with its last part, and opens again with one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_parts: bool,
}

/// Something said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Comment {
    /// Tells it from others.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// Who.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What.
    pub text: String,
}

/// Where a proposed issue comes from, or goes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Origin {
    /// Who proposed it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// In the proposer's own copy: the ledger it was proposed to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// In the proposer's own copy: the remote with the branch that proposes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remote: String,
    /// In the proposer's own copy: it was seen in that ledger.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub landed: bool,
    /// In a mirror: the status it had in that ledger when it was last looked at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
}

/// A tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// When.
    pub at: Timestamp,
    /// Who.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// One thing written about an issue. Whatever is not named stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Put {
    /// A field; nothing takes it away.
    Field(Cow<'static, str>, Option<Value>),
    /// A label comes or goes.
    Label(String, bool),
    /// A dependency comes or goes.
    Dep(Dep, bool),
    /// Something is said.
    Comment(Comment),
    /// Something was not said.
    Unsay(String),
}

/// What a line of a ledger may say, as a JSON schema.
#[must_use]
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Issue).to_value();
    let also = [
        ("estimate", "How much it is, in any words."),
        ("external", "What it is called elsewhere: {system, ref}."),
        ("meta", "Anything, for other programs."),
        ("was", "Digests of the fields as they were written; toft writes it, and tells by it what was edited by hand."),
        ("clk", "When each field was written, by which clone; toft writes it."),
        ("sum", "Tells whether the line was changed by hand; toft writes it."),
    ];
    for (name, says) in also {
        schema["properties"][name] = serde_json::json!({ "description": says });
    }
    schema
}
