//! Refusals: outcomes that say no, and why, so that a caller can act.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::{
    agent::Role,
    flow::TaskStatus,
    id::{CheckpointId, TaskId},
    lease::Fence,
    ready::Reason,
    rights::{Action, named},
    store::StoreError,
    time::Timestamp,
};

/// An issue that cannot be started, for example because its template is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unstartable {
    /// The issue.
    pub issue: String,
    /// What is wrong.
    pub why: String,
}

/// Why a verb did nothing. One enum for all verbs: each surface maps every variant once.
#[derive(Clone, Debug, Error, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Refusal {
    /// Something in it looks private; a person decides about each finding.
    #[error("nothing was published; to decide about first: {}", findings.iter().map(|(id, what)| format!("{id} ({what})")).collect::<Vec<_>>().join("; "))]
    Findings {
        /// A short id of each, and what was found where.
        findings: Vec<(String, String)>,
    },
    /// No such thing.
    #[error("no {what} matches `{text}`")]
    NotFound {
        /// What was looked for.
        what: Cow<'static, str>,
        /// What was typed.
        text: String,
    },
    /// Several things.
    #[error("`{text}` could be {}", candidates.join(", "))]
    Ambiguous {
        /// What was typed.
        text: String,
        /// What it could mean.
        candidates: Vec<String>,
    },
    /// Someone holds the task.
    #[error("{task} is held by {agent} until {until} (active {silent_s} s ago)")]
    LeaseHeld {
        /// Which task.
        task: TaskId,
        /// Who.
        agent: String,
        /// Whoever asks is the holder.
        yours: bool,
        /// Until when, unless renewed.
        until: Timestamp,
        /// Seconds since the holder was last heard of.
        silent_s: u64,
    },
    /// The fence is not the one of the live lease.
    #[error("your hold on {task} (fence {yours}) is over; {}", .holder.as_ref().map_or("nobody holds it now".to_owned(), |agent| format!("{agent} holds it now")))]
    FenceStale {
        /// Which task.
        task: TaskId,
        /// What the caller named.
        yours: Fence,
        /// Who holds it now.
        holder: Option<String>,
    },
    /// Another session of the same agent holds the task.
    #[error("another session of {agent} holds {task}")]
    OtherSession {
        /// Which task.
        task: TaskId,
        /// The name both sessions have.
        agent: String,
    },
    /// The caller does not hold the task.
    #[error("{agent} does not hold {task} ({})", status.as_str())]
    NotHolder {
        /// Which task.
        task: TaskId,
        /// Who asked.
        agent: String,
        /// How far the task is.
        status: TaskStatus,
    },
    /// `@` was said by someone who holds nothing.
    #[error("{agent} holds nothing")]
    HoldsNothing {
        /// Who.
        agent: String,
    },
    /// The task cannot start.
    #[error("{task} is not ready: {}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NotReady {
        /// Which task.
        task: TaskId,
        /// Why.
        reasons: Vec<Reason>,
    },
    /// The issue cannot start.
    #[error("{issue} is not ready: {}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    IssueNotReady {
        /// Which issue.
        issue: String,
        /// Why.
        reasons: Vec<crate::issue::ready::IssueReason>,
    },
    /// No task can start.
    #[error(
        "nothing is ready{}{}{}{}",
        if .lacking.is_empty() { String::new() } else { format!(" for you: what is needs an agent that can {}", .lacking.join(", ")) },
        .examined.map_or(String::new(), |count| format!("; the search ended after {count} tasks that match only part of the filter")),
        .next.map_or(String::new(), |at| format!("; the next timer ends at {at}")),
        .unstartable.as_ref().map_or(String::new(), |found| format!("; {} cannot be started: {}", found.issue, found.why))
    )]
    NothingReady {
        /// When the next timer ends.
        next: Option<Timestamp>,
        /// Capabilities that ready tasks want and the agent lacks.
        lacking: Vec<String>,
        /// The search ended after so many tasks that matched one part of the filter and not another.
        #[serde(skip_serializing_if = "Option::is_none")]
        examined: Option<usize>,
        /// An issue that would be ready, if it could be started.
        #[serde(skip_serializing_if = "Option::is_none")]
        unstartable: Option<Unstartable>,
    },
    /// The thing is in another state.
    #[error("{id} is {state}; {wanted}")]
    WrongState {
        /// Which.
        id: String,
        /// What it is.
        state: String,
        /// What it would have to be.
        wanted: String,
    },
    /// `done` without anything to show for it.
    #[error("done needs evidence: a commit, an artefact, or the reason why nothing had to change")]
    NeedsEvidence,
    /// Another checkpoint was written meanwhile.
    #[error("{task} has a newer checkpoint than the one you built on")]
    ParentMoved {
        /// On which task.
        task: TaskId,
        /// The newest.
        newest: Option<CheckpointId>,
    },
    /// The graph would bite its own tail.
    #[error("these would wait for each other: {}", path.join(" -> "))]
    Cycle {
        /// The tasks on the way.
        path: Vec<String>,
    },
    /// The agent was told to take nothing new.
    #[error("{agent} is {state} and takes nothing new")]
    AgentPaused {
        /// Who.
        agent: String,
        /// Paused or removed.
        state: String,
    },
    /// The caller's role does not allow it.
    #[error("{role} `{agent}` may not {action}; {}", match action.roles() { [only] => format!("only {} may", named(&[*only])), roles => format!("{} may", named(roles)) })]
    NotAllowed {
        /// Who asked.
        agent: String,
        /// In which role.
        role: Role,
        /// For what.
        action: Action,
    },
    /// Something that looks like a secret would be published.
    #[error("{found}")]
    Secret {
        /// What was found, and the names of the findings.
        found: String,
    },
    /// A name that is taken.
    #[error("{what} `{name}` exists already")]
    Exists {
        /// What.
        what: Cow<'static, str>,
        /// The name.
        name: String,
    },
    /// A field says something that cannot be.
    #[error("{field}: {problem}")]
    Invalid {
        /// Which field.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// A template needs more.
    #[error("the template needs a value for {}", names.join(", "))]
    MissingVariables {
        /// Which.
        names: Vec<String>,
    },
    /// A template knows nothing of these.
    #[error("the template has no variable {}; it has {}", unknown.join(", "), known.join(", "))]
    UnknownVariables {
        /// Which.
        unknown: Vec<String>,
        /// What it has.
        known: Vec<String>,
    },
    /// As many workspaces as may be are there.
    #[error("there are {there} workspaces, and {most} may be; {}", if .could_go.is_empty() { "all of them are pinned".to_owned() } else { format!("these are the oldest: {}", .could_go.join(", ")) })]
    NoRoom {
        /// So many are there.
        there: usize,
        /// So many.
        most: usize,
        /// The oldest that are not pinned.
        could_go: Vec<String>,
    },
    /// What was done stays done.
    #[error("`{what}` of {entity} is not taken back: {why}")]
    CannotUndo {
        /// What was done.
        what: String,
        /// To what.
        entity: String,
        /// Why it stays.
        why: String,
    },
    /// The operation id belongs to another request.
    #[error("operation {op} was another request: `{verb}` by {actor}")]
    OpReused {
        /// The id.
        op: String,
        /// What it was used for.
        verb: String,
        /// By whom.
        actor: String,
    },
    /// A newer toft at the other end refused for a reason that this one does not know.
    #[error("{message}")]
    Other {
        /// Its sentence.
        message: String,
    },
}

/// Why a verb stopped: it refused, or the store failed.
#[derive(Debug, Error)]
pub enum VerbError {
    /// A rule said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store could not.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// A verb's error as it is sent: with its sentence, for a reader that does not know its code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentError {
    /// Whether a rule said no; else the store failed.
    pub refused: bool,
    /// The whole sentence.
    pub message: String,
    /// The [`Refusal`] or [`StoreError`].
    pub error: Value,
}

impl From<&VerbError> for SentError {
    fn from(error: &VerbError) -> Self {
        let (refused, sent) = match error {
            VerbError::Refused(refusal) => (true, serde_json::to_value(refusal)),
            VerbError::Failed(failure) => (false, serde_json::to_value(failure)),
        };
        Self { refused, message: error.to_string(), error: sent.unwrap_or_default() }
    }
}

impl From<SentError> for VerbError {
    fn from(SentError { refused, message, error }: SentError) -> Self {
        if refused {
            serde_json::from_value(error).unwrap_or(Refusal::Other { message }).into()
        } else {
            let unknown = |_| StoreError::Failed { doing: "answer".into(), cause: message };
            serde_json::from_value(error).unwrap_or_else(unknown).into()
        }
    }
}

/// What a verb gives back.
pub type VerbResult<T> = Result<T, VerbError>;
