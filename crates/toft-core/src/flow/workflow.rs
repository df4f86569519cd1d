//! Workflows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{RepositoryId, WorkflowId},
    repository::{Place, Scope},
    schema::JsonSchema,
    time::Timestamp,
};

/// One or more tasks with dependencies that were started together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workflow {
    /// Stable id.
    pub id: WorkflowId,
    pub title: String,
    /// Its origin.
    pub source: Source,
    pub status: WorkflowStatus,
    /// The reason for its status, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// 0 is most urgent; tasks inherit it.
    pub priority: u8,
    /// A description of how the work is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_summary: Option<String>,
    /// Maximum number of tasks held at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Maximum total cost of its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// What attempts have cost so far.
    #[serde(default)]
    pub spent: f64,
    /// Derived: the maximum number of tasks is held.
    #[serde(default)]
    pub full: bool,
    /// `name@version` of its template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Every repository its tasks work in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<RepositoryId>,
    /// Free-form settings for its agents, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Value>,
    /// The actor whose action completed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// The ledger of its issue contains its current state.
    #[serde(default, rename = "told", skip_serializing_if = "std::ops::Not::not")]
    pub ledger_updated: bool,
    /// Number of its landings that have to land before it is completed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlanded: u32,
    /// Number of tasks.
    pub tasks: u32,
    /// Where it was created.
    pub place: Place,
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

impl Workflow {
    /// Does it limit what may run at once? Then its tasks queue in a lane of their own, which shuts when it is full.
    #[must_use]
    pub fn limited(&self) -> bool {
        self.max_parallel.is_some() || self.budget.is_some()
    }

    /// Is its own lane open?
    #[must_use]
    pub fn lane_open(&self) -> bool {
        self.limited() && self.has_room()
    }

    /// The issue it is on, if any.
    #[must_use]
    pub fn issue(&self) -> Option<&str> {
        match &self.source {
            Source::Issue { id, .. } => Some(id),
            _ => None,
        }
    }

    /// What it means for its issue.
    #[must_use]
    pub fn issue_state(&self) -> Option<IssueState> {
        self.issue()?;
        match self.status {
            WorkflowStatus::Completed | WorkflowStatus::Failed | WorkflowStatus::Abandoned => {
                (!self.ledger_updated).then_some(IssueState::Untold)
            }
            _ => Some(IssueState::Live),
        }
    }

    /// Does the ledger of its issue still have to be told something?
    #[must_use]
    pub fn ledger_pending(&self) -> bool {
        self.issue().is_some() && !self.ledger_updated
    }

    /// Has its budget been used up?
    #[must_use]
    pub fn overspent(&self) -> bool {
        self.budget.is_some_and(|budget| self.spent >= budget)
    }

    /// Is it seen from there? A workflow is seen from every repository that its tasks work in.
    #[must_use]
    pub fn seen_from(&self, scope: &Scope) -> bool {
        let works_in = |id: &RepositoryId| scope.worktree.is_none() && self.repositories.contains(id);
        scope.covers(&self.place) || scope.repository.as_ref().is_some_and(works_in)
    }

    /// May another of its tasks start?
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.status == WorkflowStatus::Running && !self.full && !self.overspent()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What a workflow means for its issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueState {
    /// It is active: no other workflow may start for the issue.
    Live,
    /// It has ended, and the issue's ledger does not contain that yet.
    Untold,
}

impl IssueState {
    /// The word a store keeps.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Untold => "untold",
        }
    }
}

/// The origin of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Source {
    /// Text that a user typed.
    Prompt { text: String },
    /// A plan file.
    Plan {
        /// Its file name.
        file: String,
    },
    /// A template.
    Template {
        /// `name@version`.
        name: String,
    },
    /// An issue.
    Issue { id: String, ledger: String },
    /// Another system.
    External {
        /// The reference in that system.
        reference: String,
    },
}

/// The status of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowStatus {
    /// Has no tasks yet.
    Planning,
    /// Has tasks, but is not started.
    Ready,
    /// Its tasks can be claimed.
    Running,
    /// Its tasks cannot be claimed for now.
    Paused,
    /// Every task is done or skipped.
    Completed,
    /// No task can continue, because one failed for good.
    Failed,
    /// Given up by a person or a coordinator.
    Abandoned,
}

impl WorkflowStatus {
    /// Every status, in the order of a workflow's life.
    pub const ALL: [Self; 7] =
        [Self::Planning, Self::Ready, Self::Running, Self::Paused, Self::Completed, Self::Failed, Self::Abandoned];

    /// Is it over? A failed one can be taken up again.
    #[must_use]
    pub fn finished(self) -> bool {
        matches!(self, Self::Completed | Self::Abandoned)
    }

    /// May a workflow go from here to `next`?
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        use WorkflowStatus::{Abandoned, Completed, Failed, Paused, Planning, Ready, Running};
        match next {
            Planning => false,
            Ready => self == Planning,
            Running => matches!(self, Ready | Paused | Failed),
            Paused => self == Running,
            Completed | Failed => self == Running,
            Abandoned => !self.finished(),
        }
    }

    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planning => "planning",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }

    /// The status called `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}
