//! Refusals: outcomes of a verb that changed nothing, with the reason, so that a caller can act.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::{
    agent::Role,
    flow::TaskStatus,
    id::{CheckpointId, TaskId},
    json,
    lease::Fence,
    ready::Reason,
    rights::{Action, named},
    schema::JsonSchema,
    store::StoreError,
    time::Timestamp,
    token::TokenRole,
};

/// An issue that cannot be started, for example because its template is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unstartable {
    pub issue: String,
    /// What is wrong.
    pub why: String,
}

/// Why a verb did nothing. One enum for all verbs: each surface maps every variant once.
#[derive(Clone, Debug, Error, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Refusal {
    /// Published text looks private; a person decides about each finding.
    #[error("nothing was published; these findings need a decision: {}", findings.iter().map(|(id, what)| format!("{id} ({what})")).collect::<Vec<_>>().join("; "))]
    Findings {
        /// The short id of each finding, with its location.
        findings: Vec<(String, String)>,
    },
    /// The thing does not exist.
    #[error("no {what} matches `{text}`")]
    NotFound {
        /// The kind of thing that was looked up.
        what: Cow<'static, str>,
        /// The text that was given.
        text: String,
    },
    /// The text matches several things.
    #[error("`{text}` could be {}", candidates.join(", "))]
    Ambiguous {
        /// The text that was given.
        text: String,
        /// The possible matches.
        candidates: Vec<String>,
    },
    /// An agent holds the task.
    #[error("{task} is held by {agent} until {until} (active {silent_s} s ago)")]
    LeaseHeld {
        task: TaskId,
        /// The holder.
        agent: String,
        /// The caller is the holder.
        yours: bool,
        /// When the lease ends unless it is renewed.
        until: Timestamp,
        /// Seconds since the holder's last sign of life.
        silent_s: u64,
    },
    /// The fence is not that of the live lease.
    #[error("your lease on {task} (fence {yours}) has ended; {}", .holder.as_ref().map_or("no agent holds it now".to_owned(), |agent| format!("{agent} holds it now")))]
    FenceStale {
        task: TaskId,
        /// The fence that the caller gave.
        yours: Fence,
        /// The current holder.
        holder: Option<String>,
    },
    /// Another session of the same agent holds the task.
    #[error("another session of {agent} holds {task}")]
    OtherSession {
        task: TaskId,
        /// The name of both sessions.
        agent: String,
    },
    /// The caller does not hold the task.
    #[error("{agent} does not hold {task} ({})", status.as_str())]
    NotHolder {
        task: TaskId,
        /// The caller.
        agent: String,
        /// The status of the task.
        status: TaskStatus,
    },
    /// The caller used `@` but holds no task.
    #[error("{agent} holds nothing")]
    HoldsNothing {
        /// The caller.
        agent: String,
    },
    /// The task cannot start.
    #[error("{task} is not ready: {}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotReady { task: TaskId, reasons: Vec<Reason> },
    /// The issue cannot start.
    #[error("{issue} is not ready: {}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    IssueNotReady { issue: String, reasons: Vec<crate::issue::ready::IssueReason> },
    /// No task can start.
    #[error(
        "nothing is ready{}{}{}{}",
        if .lacking.is_empty() { String::new() } else { format!(" for you: ready tasks need an agent that can {}", .lacking.join(", ")) },
        .examined.map_or(String::new(), |count| format!("; the search ended after {count} tasks that match only part of the filter")),
        .next.map_or(String::new(), |at| format!("; the next timer ends at {at}")),
        .unstartable.as_ref().map_or(String::new(), |found| format!("; {} cannot be started: {}", found.issue, found.why))
    )]
    NothingReady {
        /// When the next timer expires.
        next: Option<Timestamp>,
        /// Capabilities that ready tasks require and the agent lacks.
        lacking: Vec<String>,
        /// The search ended after this many tasks that matched one part of the filter but not another.
        #[serde(skip_serializing_if = "Option::is_none")]
        examined: Option<usize>,
        /// An issue that would be ready, if it could be started.
        #[serde(skip_serializing_if = "Option::is_none")]
        unstartable: Option<Unstartable>,
    },
    /// The entity is in another state.
    #[error("{id} is {state}; {wanted}")]
    WrongState {
        id: String,
        state: String,
        /// The state that the request needs.
        wanted: String,
    },
    /// `done` without evidence.
    #[error("done needs evidence: a commit, an artefact, or the reason why nothing had to change")]
    NeedsEvidence,
    /// A commit that was not verified.
    #[error("done needs a commit on which `{command}` succeeds")]
    Unverified { command: String },
    /// Another checkpoint was written in the meantime.
    #[error("{task} has a newer checkpoint than the one you built on")]
    ParentMoved {
        task: TaskId,
        /// The newest checkpoint.
        newest: Option<CheckpointId>,
    },
    /// The dependency graph would have a cycle.
    #[error("these would wait for each other: {}", path.join(" -> "))]
    Cycle {
        /// The tasks of the cycle.
        path: Vec<String>,
    },
    /// The agent is paused or removed, and may not claim.
    #[error("{agent} is {state} and cannot claim{}", note.as_ref().map(|note| format!(": {note}")).unwrap_or_default())]
    AgentPaused {
        agent: String,
        /// Paused or removed.
        state: String,
        /// What was said when it was paused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The caller's role does not allow it.
    #[error("{role} `{agent}` may not {action}; {}", match action.roles() { [only] => format!("only {} may", named(&[*only])), roles => format!("{} may", named(roles)) })]
    NotAllowed {
        /// The caller.
        agent: String,
        role: Role,
        action: Action,
    },
    /// The caller's token does not allow it.
    #[error("the token of `{name}` ({role}) does not allow that: {why}")]
    TokenDenied {
        /// The owner of the token.
        name: String,
        role: TokenRole,
        why: String,
    },
    /// Text that looks like a secret would be published.
    #[error("{found}")]
    Secret {
        /// What was found, with the names of the findings.
        found: String,
    },
    /// The name is already in use.
    #[error("{what} `{name}` exists already")]
    Exists {
        /// The kind of thing.
        what: Cow<'static, str>,
        name: String,
    },
    /// A field has an invalid value.
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
    /// A template needs values for more variables.
    #[error("the template needs a value for {}", names.join(", "))]
    MissingVariables { names: Vec<String> },
    /// The template has no such variables.
    #[error("the template has no variable {}; it has {}", unknown.join(", "), known.join(", "))]
    UnknownVariables {
        /// The unknown names.
        unknown: Vec<String>,
        /// The variables that it has.
        known: Vec<String>,
    },
    /// The maximum number of workspaces is reached.
    #[error("there are {there} workspaces, and the maximum is {most}; {}", if .could_go.is_empty() { "all of them are pinned".to_owned() } else { format!("these are the oldest: {}", .could_go.join(", ")) })]
    NoRoom {
        /// The number of workspaces.
        there: usize,
        /// The maximum.
        most: usize,
        /// The oldest workspaces that are not pinned.
        could_go: Vec<String>,
    },
    /// The operation cannot be undone.
    #[error("cannot undo or redo `{what}` of {entity}: {why}")]
    CannotUndo {
        /// The operation.
        what: String,
        /// The entity that it changed.
        entity: String,
        /// The reason.
        why: String,
    },
    /// The operation id belongs to another request.
    #[error("operation {op} was used for another request: `{verb}` by {actor}")]
    OpReused {
        /// The id.
        op: String,
        /// The verb that it was used for.
        verb: String,
        /// The agent that used it.
        actor: String,
    },
    /// A newer toft at the other end refused for a reason that this version does not know.
    #[error("{message}")]
    Other { message: String },
}

/// Why a verb failed: it was refused, or the store failed.
#[derive(Debug, Error)]
pub enum VerbError {
    /// A rule refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// A verb's error as it is transmitted, with its message, for a reader that does not know its code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentError {
    /// Whether a rule refused; otherwise the store failed.
    pub refused: bool,
    /// The complete message.
    pub message: String,
    /// The [`Refusal`] or [`StoreError`].
    pub error: Value,
}

impl From<&VerbError> for SentError {
    fn from(error: &VerbError) -> Self {
        let (refused, sent) = match error {
            VerbError::Refused(refusal) => (true, json::to_value(refusal)),
            VerbError::Failed(failure) => (false, json::to_value(failure)),
        };
        Self { refused, message: error.to_string(), error: sent.unwrap_or_default() }
    }
}

impl From<SentError> for VerbError {
    fn from(SentError { refused, message, error }: SentError) -> Self {
        if refused {
            json::from_value(&error).unwrap_or(Refusal::Other { message }).into()
        } else {
            let unknown = |_| StoreError::Failed { doing: "answer".into(), cause: message };
            json::from_value(&error).unwrap_or_else(unknown).into()
        }
    }
}

/// The result of a verb.
pub type VerbResult<T> = Result<T, VerbError>;
