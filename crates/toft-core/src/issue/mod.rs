//! Issues: the plan. They are stored in ledgers; a store contains only an index of them.
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
pub mod stage;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    schema::{JsonSchema, checked_in},
    {id::IdGenerator, json, time::Timestamp},
};

/// The prefix of ids that toft generates. Other ids are accepted unchanged.
pub const PREFIX: &str = "tf-";

/// Number of characters after the prefix.
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

/// One issue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// Stable id, the same in every ledger.
    pub id: String,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Issues that it needs or is related to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deps: Vec<Dep>,
    /// The agent that works on it or that it is assigned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// The person responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it was created, and its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Stamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Closed>,
    /// It must not start before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defer_until: Option<Timestamp>,
    /// The due date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<String>,
    /// The acceptance criteria.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<Comment>,
    /// The template of its workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// local, proposed, overlay; if absent, it is visible to everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// The ledger from which, or to which, it was proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The tombstone, if it was deleted.
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
/// In progress.
pub const IN_PROGRESS: &str = "in_progress";
/// Deferred.
pub const DEFERRED: &str = "deferred";
/// Closed.
pub const CLOSED: &str = "closed";
/// The type of an issue that consists of other issues.
pub const EPIC: &str = "epic";
/// The label of an issue that is claimed only by its id.
pub const NO_AUTO_CLAIM: &str = "no-auto-claim";

impl Issue {
    /// Whether it is claimed only by its id: it is labelled so, or it is an epic that nobody was assigned to.
    #[must_use]
    pub fn only_by_name(&self) -> bool {
        self.labels.iter().any(|label| label == NO_AUTO_CLAIM) || self.kind == EPIC && self.assignee.is_none()
    }

    /// Reads an issue from a line of JSON. Fields with an invalid value are skipped and returned with the problem.
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
        Ok((json::from_value(&Value::Object(fields))?, wrong))
    }

    /// Takes in a write. One that makes no issue of it, such as that of a later toft, changes nothing.
    pub fn put(&mut self, put: &Put) {
        let Ok(Value::Object(mut fields)) = json::to_value(&*self) else { return };
        let mut member = |name: &str, member: Value, there: bool| {
            let all = fields.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(all) = all.as_array_mut() {
                all.retain(|known| *known != member);
                all.extend(there.then_some(member));
            }
        };
        match put {
            Put::Field(name, Some(value)) => drop(fields.insert(name.to_string(), value.clone())),
            Put::Field(name, None) => drop(fields.remove(name.as_ref())),
            Put::Label(label, there) => member("labels", label.as_str().into(), *there),
            Put::Dep(dep, there) => member("deps", json::to_value(dep).unwrap_or_default(), *there),
            Put::Comment(said) => member("comments", json::to_value(said).unwrap_or_default(), true),
            Put::Unsay(id) => {
                self.comments.retain(|said| said.id != *id);
                return;
            }
        }
        if let Ok(issue) = json::from_value(&Value::Object(fields)) {
            *self = issue;
        }
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

    /// The issues that block it until they are closed.
    pub fn blockers(&self) -> impl Iterator<Item = &str> {
        self.deps.iter().filter(|dep| dep.blocks()).map(|dep| dep.on.as_str())
    }
}

/// A dependency on another issue, or a relation to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dep {
    /// The other issue.
    pub on: String,
    /// blocks, conditional, related, discovered-from, duplicates, supersedes, or any word.
    pub kind: String,
}

/// The kind that blocks.
pub const BLOCKS: &str = "blocks";
/// The kind that names the issue during which this one was discovered.
pub const DISCOVERED_FROM: &str = "discovered-from";

impl Dep {
    /// Does it hold back until the other is closed?
    #[must_use]
    pub fn blocks(&self) -> bool {
        [BLOCKS, "conditional"].contains(&self.kind.as_str())
    }
}

/// A time and an author.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stamp {
    /// The time.
    pub at: Timestamp,
    /// The author.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// How an issue was closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closed {
    /// When it was closed.
    pub at: Timestamp,
    /// The agent or person that closed it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The result of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Value>,
    /// An epic that closed with its last part, and opens again with one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_parts: bool,
}

/// A comment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Comment {
    pub id: String,
    /// When it was written.
    pub at: Timestamp,
    /// The author.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    pub text: String,
}

/// The source or target of a proposed issue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Origin {
    /// The author of the proposal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// In the proposer's own copy: the ledger to which it was proposed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// In the proposer's own copy: the remote with the proposal branch.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remote: String,
    /// In the proposer's own copy: it was found in that ledger.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub landed: bool,
    /// In a mirror: its status in that ledger at the last sync.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
}

/// A tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// When it was deleted.
    pub at: Timestamp,
    /// The agent or person that deleted it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// One write to an issue. All other fields stay unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Put {
    /// Sets a field; `None` removes it.
    Field(Cow<'static, str>, Option<Value>),
    /// Adds or removes a label.
    Label(String, bool),
    /// Adds or removes a dependency.
    Dep(Dep, bool),
    /// Adds a comment.
    Comment(Comment),
    /// Removes a comment.
    Unsay(String),
}

/// What a line of a ledger may say, as a JSON schema.
#[must_use]
pub fn schema() -> Value {
    checked_in(include_str!("schema.json"))
}

/// The same, from the types.
#[cfg(feature = "schema")]
#[must_use]
pub fn derive_schema() -> Value {
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
