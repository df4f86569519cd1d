//! A task, its attempts, and its dependencies.

use serde::{Deserialize, Serialize};

use crate::{
    flow::Report,
    id::{AgentId, LandingId, LeaseId, RepositoryId, TaskId, WorkflowId},
    lease::Fence,
    repository::Place,
    schema::JsonSchema,
    time::Timestamp,
};

/// The unit of work that an agent leases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Stable id.
    pub id: TaskId,
    pub workflow: WorkflowId,
    /// Position in its plan.
    pub order: u32,
    /// The specification: what to do, its assignment and its priority.
    #[serde(flatten)]
    pub spec: TaskSpec,
    /// Where it is to be worked on.
    pub place: Place,
    pub created: Timestamp,
    /// The state that changes while it is worked on.
    #[serde(flatten)]
    pub state: TaskState,
}

/// The specification of a task in a plan. A store keeps all of it, so a field that is added here is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSpec {
    /// Short name, unique in its workflow.
    pub name: String,
    /// The work to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
    /// 0 is most urgent.
    pub priority: u8,
    /// Plain labels; some determine its position in the queue ([`crate::ready::QueueClass`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Capability tags that its holder must offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Paths it expects to touch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Tasks of one group may run in parallel; a higher group waits for every lower one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_group: Option<u32>,
    /// How it will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Fails for good after this many attempts.
    pub max_attempts: u32,
    /// The name of the only agent that may claim it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_to: Option<String>,
    /// The finished work that it reviews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews: Option<ReviewedWork>,
}

/// Finished work that a task reviews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReviewedWork {
    pub landing: LandingId,
    /// The commit to look at.
    pub tip: String,
    /// The agents that worked on it, and may not review it.
    pub authors: Vec<String>,
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

    /// Whether it reviews the work of the agent `name`.
    #[must_use]
    pub fn reviews_work_of(&self, name: &str) -> bool {
        self.spec.reviews.as_ref().is_some_and(|work| work.authors.iter().any(|author| author == name))
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

/// The part of a task that changes while it is worked on, stored separately so that a claim writes little.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskState {
    pub status: TaskStatus,
    /// Number of attempts that failed or were lost.
    pub attempt: u32,
    /// Number of its newest lease; 0 before the first.
    pub fence: u64,
    /// Derived: number of dependencies that still block it.
    pub open_blockers: u32,
    /// Derived: number of tasks that wait for it.
    pub unblocks: u32,
    /// It must not start before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// When it last changed.
    pub updated: Timestamp,
}

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not held.
    Pending,
    /// Held; no sign of work yet.
    Leased,
    /// Held and worked on.
    Running,
    /// Waits for a gate; not held.
    Waiting,
    /// Finished, with evidence.
    Done,
    /// All attempts are used; a person must decide.
    Failed,
    /// Not needed.
    Skipped,
    /// Its workflow was abandoned.
    Cancelled,
}

impl TaskStatus {
    /// Every status, in the order of a task's life.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TaskOutcome")]
pub struct Outcome {
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Commands that verified it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<Verified>,
}

/// A command that verified work in its workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    pub command: String,
    /// Its exit code.
    pub exit: i32,
    /// The commit on which it ran.
    pub commit: String,
}

/// Proof that a task is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A commit or change id.
    Commit(String),
    /// A diff or other artefact, by name.
    Artifact(String),
    /// No change was needed, with the reason.
    NoChange(String),
}

fn unshown() -> LeaseId {
    LeaseId::known("")
}

/// One lease on a task, from claim to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    pub task: TaskId,
    /// The number of its lease.
    pub fence: u64,
    /// The id of its lease: half of the fence, and therefore visible to the holder only.
    #[serde(skip_serializing, default = "unshown")]
    pub lease: LeaseId,
    /// The agent that held it.
    pub agent: AgentId,
    /// Where it was claimed from.
    pub place: Place,
    /// When it was claimed.
    pub started: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<AttemptResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it cost, if it was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The observations of its runner.
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

    /// Orders its holder to stop. The order is stored in the reason, which an open attempt does not have yet.
    pub(crate) fn set_stop_order(&mut self, order: &StopOrder) {
        self.reason = serde_json::to_string(order).ok();
    }
}

/// An order to the runner of an attempt to end the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopOrder {
    /// The agent or person that gave it.
    pub by: String,
    /// The task fails for good and waits for a person, instead of being released.
    #[serde(default)]
    pub park: bool,
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
    /// The attempt failed.
    Failed,
    /// Released.
    Released,
    /// Released with a note for the next holder.
    Handoff,
    /// Released until a gate opens.
    Waiting,
    /// The lease was not renewed in time.
    Expired,
    /// The holder's process ended.
    ProcessGone,
    /// Revoked by a person.
    Revoked,
}

impl AttemptResult {
    /// The words users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Handoff => "handoff",
            Self::Waiting => "waiting",
            Self::Expired => "expired",
            Self::ProcessGone => "process gone",
            Self::Revoked => "revoked",
        }
    }
}

/// One task depends on another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Dependency {
    /// The dependent task.
    pub task: TaskId,
    /// The task that it depends on.
    pub on: TaskId,
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
    /// Starts only when the target is done or skipped.
    Blocks,
    /// Receives the outcome of the target.
    Informs,
    /// Starts only if the target fails for good; skipped if it does not.
    OnFailure,
}

impl DependencyKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Blocks, Self::Informs, Self::OnFailure];

    /// Whether a dependency of this kind blocks while its target has this status.
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
