//! A task, the attempts at it, and what it depends on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    flow::Report,
    id::{AgentId, LeaseId, RepositoryId, TaskId, WorkflowId},
    lease::Fence,
    repository::Place,
    time::Timestamp,
};

/// The unit an agent leases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Stable id.
    pub id: TaskId,
    /// Its workflow.
    pub workflow: WorkflowId,
    /// Position in its plan.
    pub order: u32,
    /// What is to be done, by whom, and how urgently.
    #[serde(flatten)]
    pub spec: TaskSpec,
    /// Where it is to be worked.
    pub place: Place,
    /// When it was made.
    pub created: Timestamp,
    /// What changes while it is worked.
    #[serde(flatten)]
    pub state: TaskState,
}

/// What a plan says of a task. A store keeps it as it is, so a field that is added here is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSpec {
    /// Short name, unique in its workflow.
    pub name: String,
    /// What is to be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
    /// 0 is most urgent.
    pub priority: u8,
    /// Plain labels; some say when it is its turn ([`crate::ready::QueueClass`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Capability tags its holder must offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Paths it expects to touch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Tasks of one group may run together; a higher group waits for every lower one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_group: Option<u32>,
    /// How it will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Fails for good after so many attempts.
    pub max_attempts: u32,
    /// The agent, by name, that alone may claim it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_to: Option<String>,
}

impl Task {
    /// The repository it is to be worked in.
    #[must_use]
    pub fn repository(&self) -> Option<&RepositoryId> {
        self.place.repository.as_ref()
    }

    /// Whether it is assigned to another agent than `name`.
    #[must_use]
    pub fn assigned_elsewhere(&self, name: &str) -> bool {
        self.spec.assigned_to.as_deref().is_some_and(|to| to != name)
    }

    /// The same task, assigned to no agent.
    #[must_use]
    pub fn unassigned(mut self) -> Self {
        self.spec.assigned_to = None;
        self
    }

    /// Capability tags it requires and `offered` lacks.
    #[must_use]
    pub fn lacking(&self, offered: &[String]) -> Vec<String> {
        self.spec.requires.iter().filter(|tag| !offered.contains(tag)).cloned().collect()
    }
}

/// The part of a task that changes while it is worked, kept apart so that a claim rewrites little.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskState {
    /// How far it is.
    pub status: TaskStatus,
    /// Attempts that failed or were lost.
    pub attempt: u32,
    /// Number of its newest lease; 0 before the first.
    pub fence: u64,
    /// Derived: dependencies that still hold it back.
    pub open_blockers: u32,
    /// Derived: how many tasks wait for it.
    pub unblocks: u32,
    /// Not offered before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// When it last changed.
    pub updated: Timestamp,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Nobody holds it.
    Pending,
    /// Held; no sign of work yet.
    Leased,
    /// Held and worked on.
    Running,
    /// Waits for a gate; nobody holds it.
    Waiting,
    /// Finished, with evidence.
    Done,
    /// Attempts are used up; a person must decide.
    Failed,
    /// Not needed.
    Skipped,
    /// Its workflow was given up.
    Cancelled,
}

impl TaskStatus {
    /// Every status, in the order of life.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Leased,
        Self::Running,
        Self::Waiting,
        Self::Done,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Can it still move by itself?
    #[must_use]
    pub fn open(self) -> bool {
        matches!(self, Self::Pending | Self::Leased | Self::Running | Self::Waiting)
    }

    /// Does someone hold it?
    #[must_use]
    pub fn held(self) -> bool {
        matches!(self, Self::Leased | Self::Running)
    }

    /// Does it let go of what `blocks` on it?
    #[must_use]
    pub fn releases(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }

    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status called `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TaskOutcome")]
pub struct Outcome {
    /// In words.
    pub summary: String,
    /// What shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// What shows that a task is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A commit or change id.
    Commit(String),
    /// A diff or other artefact, by name.
    Artifact(String),
    /// Nothing had to change, and why.
    NoChange(String),
}

fn unshown() -> LeaseId {
    LeaseId::known("")
}

/// One hold on a task, from lease to end. Kept for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// At which task.
    pub task: TaskId,
    /// Number of its lease.
    pub fence: u64,
    /// Id of its lease: half of the fence, and so nobody's to see but the holder's.
    #[serde(skip_serializing, default = "unshown")]
    pub lease: LeaseId,
    /// Who held it.
    pub agent: AgentId,
    /// Where it was claimed from.
    pub place: Place,
    /// When it was claimed.
    pub started: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<AttemptResult>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it cost, if anyone said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// What its runner saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

impl Attempt {
    /// The fence its holder must name.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence { number: self.fence, id: self.lease.clone() }
    }

    /// The order to stop it, while it is open.
    #[must_use]
    pub fn stop_order(&self) -> Option<StopOrder> {
        let reason = self.reason.as_deref().filter(|_| self.ended.is_none())?;
        serde_json::from_str(reason).ok()
    }

    /// Orders its holder to stop. An open attempt has no reason yet, so that is where the order is kept.
    pub(crate) fn set_stop_order(&mut self, order: &StopOrder) {
        self.reason = serde_json::to_string(order).ok();
    }
}

/// An order to the runner of an attempt: end the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopOrder {
    /// Who wants it.
    pub by: String,
    /// The task fails for good and asks a person, instead of being given back.
    #[serde(default)]
    pub park: bool,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

impl std::fmt::Display for StopOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stopped by {}", self.by)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    /// The task is done.
    Done,
    /// It did not work.
    Failed,
    /// Given back.
    Released,
    /// Given back with a note for the next holder.
    Handoff,
    /// Given back until a gate opens.
    Waiting,
    /// Nobody renewed the lease in time.
    Expired,
    /// The holder's process ended.
    ProcessGone,
    /// Taken away by a person.
    Revoked,
}

/// One task depends on another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Dependency {
    /// The one that depends.
    pub task: TaskId,
    /// On this one.
    pub on: TaskId,
    /// How.
    pub kind: DependencyKind,
}

impl Dependency {
    /// Does it hold its task back while its target has this status? A target that cannot be found does, visibly.
    #[must_use]
    pub fn holds_back(&self, target: Option<TaskStatus>) -> bool {
        match target {
            Some(status) => self.kind.holds_back(status),
            None => self.kind != DependencyKind::Informs,
        }
    }
}

/// How one task depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// Starts only when that one is done or skipped.
    Blocks,
    /// Wants to know how that one ended.
    Informs,
    /// Starts only if that one fails for good; skipped if it does not.
    OnFailure,
}

impl DependencyKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Blocks, Self::Informs, Self::OnFailure];

    /// Does a dependency of this kind on a task with this status hold back?
    ///
    /// A failed task that was then skipped has failed all the same; one that was skipped without failing takes
    /// what depends on its failure along.
    #[must_use]
    pub fn holds_back(self, on: TaskStatus) -> bool {
        match self {
            Self::Blocks => !on.releases(),
            Self::Informs => false,
            Self::OnFailure => !matches!(on, TaskStatus::Failed | TaskStatus::Skipped),
        }
    }

    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Informs => "informs",
            Self::OnFailure => "on_failure",
        }
    }

    /// The kind called `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}
