//! Facts: plain questions about rows, for commands that decide what to do on their own machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext, find};
use crate::{
    flow::{Attempt, Task, WorkflowStatus},
    id::{LandingId, RepositoryId, TaskId},
    landing::Landing,
    lease::{Fence, Holder, Lease},
    may::May,
    message::{Address, InboxItem},
    refusal::VerbResult,
    repository::{Scope, Worktree},
    schema::JsonSchema,
    store::{Access, LeasesOf, TaskQuery, WorkflowQuery, WorkspaceQuery},
    time::Timestamp,
    token::TokenRole,
    workspace::Workspace,
};

/// Maximum number of rows that an answer without a limit of its own has.
const MOST: usize = 1_000;
/// Maximum number of messages of an inbox that are looked through.
const LETTERS: usize = 1_000;

macro_rules! fact {
    ($request:ident, $name:literal, $may:expr, $outcome:ty, |$self:ident, $work:ident| $answer:expr) => {
        impl Verb for $request {
            type Outcome = $outcome;
            const NAME: &'static str = $name;
            const ACCESS: Access = Access::Read;
            const MAY: May<Self> = $may;

            fn run($self, $work: &mut VerbContext<'_>) -> VerbResult<$outcome> {
                $answer
            }
        }
    };
}

/// A task, by its whole id.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskRow {
    pub task: TaskId,
}

fact!(
    TaskRow,
    "task.row",
    May::of(TokenRole::Viewer).or_agent(|request, job| request.task == job.task),
    Option<Task>,
    |self, work| Ok(work.tx.task(&self.task)?)
);

/// The attempts at a task, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskAttempts {
    pub task: TaskId,
}

fact!(
    TaskAttempts,
    "task.attempts",
    May::of(TokenRole::Viewer).or_agent(|request, job| request.task == job.task),
    Vec<Attempt>,
    |self, work| Ok(work.tx.attempts(&self.task)?)
);

/// The names of tasks for people.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskNames {
    pub tasks: Vec<TaskId>,
    /// The issue also if it has other tasks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
}

fact!(TaskNames, "task.names", May::of(TokenRole::Viewer), Vec<String>, |self, work| {
    let name = |task: &TaskId| match self.parts {
        true => find::called_with_parts(work.tx, task),
        false => find::called(work.tx, task),
    };
    Ok(self.tasks.iter().map(name).collect::<Result<_, _>>()?)
});

/// Messages to any holder of a task, oldest first: those that nobody has read yet.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskLetters {
    pub task: TaskId,
    /// Include those that were read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
}

fact!(
    TaskLetters,
    "task.letters",
    May::of(TokenRole::Viewer).or_agent(|request, job| request.task == job.task),
    Vec<InboxItem>,
    |self, work| {
        let holders: BTreeSet<_> = work.tx.attempts(&self.task)?.into_iter().map(|attempt| attempt.agent).collect();
        let mut letters = Vec::new();
        for holder in holders {
            letters.extend(work.tx.inbox(holder.as_str(), !self.read, LETTERS)?);
        }
        letters.retain(|letter| letter.message.to == Address::Holder(self.task.clone()));
        letters.sort_by_key(|letter| letter.message.created);
        Ok(letters)
    }
);

/// A landing, by its whole id.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LandingRow {
    pub landing: LandingId,
}

fact!(
    LandingRow,
    "land.row",
    May::of(TokenRole::Viewer).or_agent(|request, job| request.landing == Landing::id_of(&job.task)),
    Option<Landing>,
    |self, work| Ok(work.tx.landing(&self.landing)?)
);

/// The clock of the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Clock {}

/// What the clock of the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReading {
    pub now: Timestamp,
    /// When the newest event was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_event: Option<Timestamp>,
}

fact!(Clock, "clock", May::of(TokenRole::Viewer).or_agent(|_, _| true), ClockReading, |self, work| {
    Ok(ClockReading { now: work.now.wall, newest_event: work.tx.newest_event_at()? })
});

/// Workspaces of a repository, newest first; of every repository if none is named.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkspaceRows {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryId>,
    /// Only workspaces that are not removed.
    pub live: bool,
}

fact!(WorkspaceRows, "ws.rows", May::of(TokenRole::Viewer), Vec<Workspace>, |self, work| {
    let query = WorkspaceQuery { repository: self.repository, live: self.live, ..WorkspaceQuery::default() };
    Ok(work.tx.workspaces(&query)?)
});

/// The known worktrees of a repository, by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Worktrees {
    pub repository: RepositoryId,
}

fact!(Worktrees, "worktrees", May::of(TokenRole::Viewer).or_agent(|_, _| true), Vec<Worktree>, |self, work| Ok(work
    .tx
    .worktrees(&self.repository)?));

/// Ids of any kind that start with a prefix.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ids {
    pub prefix: String,
    pub limit: usize,
}

fact!(Ids, "ids", May::of(TokenRole::Viewer), Vec<String>, |self, work| Ok(work
    .tx
    .ids(&self.prefix, self.limit.clamp(1, MOST))?));

/// How far the store is with an issue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct IssueProgress {
    pub issue: String,
}

/// How far the store is with an issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IssueStage {
    /// It has no active workflow.
    Idle,
    /// It has one, and no agent ever held one of its tasks.
    Started,
    /// An agent works on it, or has.
    WorkedOn,
}

fact!(IssueProgress, "issue.progress", May::of(TokenRole::Viewer), IssueStage, |self, work| {
    let Some(workflow) = work.tx.workflow_of_issue(&self.issue)? else { return Ok(IssueStage::Idle) };
    let all = TaskQuery { workflow: Some(workflow.id), ..TaskQuery::default() };
    let held = work.tx.tasks(&all)?.iter().any(|task| task.state.fence > 0);
    Ok(if held { IssueStage::WorkedOn } else { IssueStage::Started })
});

/// Issues in scope that have an active workflow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StartedIssues {
    pub scope: Scope,
}

fact!(StartedIssues, "issue.started", May::of(TokenRole::Viewer), BTreeSet<String>, |self, work| {
    let statuses = WorkflowStatus::ALL.into_iter().filter(|status| !status.finished()).collect();
    let workflows = work.tx.workflows(&WorkflowQuery { scope: self.scope, statuses, limit: MOST })?;
    Ok(workflows.iter().filter_map(|workflow| workflow.issue().map(str::to_owned)).collect())
});

/// Repositories whose ledgers have to be told of issues.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PendingRepositories {
    /// Maximum number of issues that are looked at.
    pub limit: usize,
}

fact!(
    PendingRepositories,
    "issue.pending_repositories",
    May::of(TokenRole::Viewer).or_agent(|_, _| true),
    BTreeSet<RepositoryId>,
    |self, work| {
        let pending = work.tx.ledger_pending(None, self.limit.clamp(1, MOST))?;
        Ok(pending.into_iter().filter_map(|workflow| workflow.place.repository).collect())
    }
);

/// Which of these leases are live.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LiveLeases {
    pub holds: Vec<(TaskId, Fence)>,
}

fact!(
    LiveLeases,
    "lease.live",
    May::of(TokenRole::Viewer).or_agent(|request, job| job.holds_alone(&request.holds)),
    Vec<Fence>,
    |self, work| {
        let mut live = Vec::new();
        for (task, fence) in self.holds {
            if work.tx.lease(&task)?.is_some_and(|lease| lease.fence == fence) {
                live.push(fence);
            }
        }
        Ok(live)
    }
);

/// The leases of the calling agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct OwnLeases {}

/// A lease of the calling agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnLease {
    pub task: TaskId,
    pub fence: Fence,
    /// The process that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

fact!(OwnLeases, "lease.own", May::of(TokenRole::Viewer), Vec<OwnLease>, |self, work| {
    let Some(agent) = work.tx.agent_named(work.actor)? else { return Ok(Vec::new()) };
    let leases = work.tx.leases(&LeasesOf::Agent(agent.id))?.into_iter();
    Ok(leases.map(|Lease { task, fence, holder, .. }| OwnLease { task, fence, holder }).collect())
});

/// The processes that hold these leases, by the ids of the leases.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LeaseHolders {
    pub leases: BTreeSet<String>,
}

fact!(LeaseHolders, "lease.holders", May::of(TokenRole::Viewer), Vec<(String, Holder)>, |self, work| {
    let all = work.tx.leases(&LeasesOf::Repository(None))?;
    let asked = all.into_iter().filter(|lease| self.leases.contains(lease.fence.id.as_str()));
    Ok(asked.filter_map(|lease| Some((lease.fence.id.to_string(), lease.holder?))).collect())
});

/// The processes on the caller's machine that leases follow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostProcesses {}

fact!(HostProcesses, "lease.processes", May::of(TokenRole::Worker), BTreeSet<Holder>, |self, work| {
    let host = work.processes.host();
    let mut processes = BTreeSet::new();
    for lease in work.tx.overdue(work.now.wall, Some(host), 0)? {
        if let Some(holder) = lease.holder.filter(|holder| holder.host == host)
            && work.speaks_for_agent(&lease.agent)?
        {
            processes.insert(holder);
        }
    }
    Ok(processes)
});
