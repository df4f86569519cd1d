//! The ready rule: what can start now, in which order, and why other tasks cannot start.
//!
//! [`reasons`] judges one task from its facts. [`entry`] expresses the same judgement as a queue entry, stored so that
//! reading the head of the queue is one range scan; a property test checks that the two agree.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    change::QueueEntry,
    flow::{Dependency, DependencyKind, Task, TaskStatus, Workflow, WorkflowStatus},
    gate::Gate,
    id::{TaskId, WorkflowId},
    repository::Scope,
    schema::JsonSchema,
    store::{QueueKey, QueueScan, Result, StoreTx},
    time::Timestamp,
};

/// The position that a label gives to work in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueClass {
    /// Ordered by priority.
    #[default]
    Planned,
    /// Discovered work that blocks the current work: before planned work.
    Blocker,
    /// Discovered work that does not block: after planned work of the same priority.
    Related,
    /// A failure of the baseline, on which all work depends: before everything else.
    Baseline,
}

impl QueueClass {
    /// The labels that select a class.
    pub const LABELS: [(&str, Self); 3] = [
        ("baseline-failure", Self::Baseline),
        ("discovered:blocker", Self::Blocker),
        ("discovered:related", Self::Related),
    ];

    const ALL: [Self; 4] = [Self::Planned, Self::Blocker, Self::Related, Self::Baseline];

    /// As a store keeps it.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// What a store kept.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        Self::ALL.into_iter().find(|turn| turn.number() == number).unwrap_or_default()
    }

    /// What the labels of a task or an issue say.
    #[must_use]
    pub fn of(labels: &[String]) -> Self {
        let said = Self::LABELS.into_iter().find(|(label, _)| labels.iter().any(|known| known == label));
        said.map_or(Self::Planned, |(_, turn)| turn)
    }
}

/// Why a task cannot start now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
#[non_exhaustive]
pub enum Reason {
    /// It is held, or it has ended.
    Status { status: TaskStatus },
    /// Its workflow is not running.
    Workflow {
        /// The status of the workflow.
        status: WorkflowStatus,
    },
    /// Its workflow holds the maximum number of tasks.
    ParallelLimit {
        /// The maximum.
        limit: u32,
    },
    /// Its workflow has spent its budget.
    Budget {
        budget: f64,
        /// The amount spent.
        spent: f64,
    },
    /// A dependency blocks it.
    Blocked {
        /// The task that it depends on.
        on: TaskId,
        /// The kind of dependency.
        kind: DependencyKind,
        /// The status of that task; absent if it does not exist.
        status: Option<TaskStatus>,
    },
    /// A gate is closed.
    Gate {
        /// What the gate waits for.
        waits_for: String,
    },
    /// It must not start yet.
    NotBefore {
        /// The earliest time to start.
        at: Timestamp,
    },
    /// All attempts are used.
    AttemptsUsed {
        /// Number of attempts.
        attempts: u32,
    },
    /// It is assigned to another agent.
    Assigned {
        /// The name of that agent.
        to: String,
    },
    /// The agent lacks a capability.
    MissingCapability {
        /// The missing capabilities.
        tags: Vec<String>,
    },
    /// It reviews the work of this agent.
    OwnWork,
    /// A reason that only a newer toft knows.
    #[serde(other)]
    Other,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { status } => write!(f, "it is {}", status.as_str()),
            Self::Workflow { status } => write!(f, "its workflow is {}", status.as_str()),
            Self::ParallelLimit { limit } => write!(f, "its workflow has reached its limit ({limit} at a time)"),
            Self::Budget { budget, spent } => write!(f, "its workflow spent {spent} of {budget}"),
            Self::Blocked { on, kind: DependencyKind::OnFailure, status } => {
                write!(f, "starts only if {on} fails ({})", word(*status))
            }
            Self::Blocked { on, status, .. } => write!(f, "needs {on} ({})", word(*status)),
            Self::Gate { waits_for } => write!(f, "waits for {waits_for}"),
            Self::NotBefore { at } => write!(f, "not before {at}"),
            Self::AttemptsUsed { attempts } => write!(f, "all {attempts} attempts are used"),
            Self::Assigned { to } => write!(f, "it is assigned to {to}"),
            Self::MissingCapability { tags } => write!(f, "needs an agent that can {}", tags.join(", ")),
            Self::OwnWork => f.write_str("it reviews your own work"),
            Self::Other => f.write_str("for a reason that only a newer toft knows"),
        }
    }
}

fn word(status: Option<TaskStatus>) -> &'static str {
    status.map_or("not found", TaskStatus::as_str)
}

/// Everything that keeps a task from starting; empty means ready.
#[must_use]
pub fn reasons(
    task: &Task,
    workflow: &Workflow,
    dependencies: &[(Dependency, Option<TaskStatus>)],
    gates: &[Gate],
    now: Timestamp,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if !matches!(task.state.status, TaskStatus::Pending | TaskStatus::Waiting) {
        return vec![Reason::Status { status: task.state.status }];
    }
    if workflow.status != WorkflowStatus::Running {
        reasons.push(Reason::Workflow { status: workflow.status });
    }
    if let Some(limit) = workflow.max_parallel.filter(|_| workflow.full) {
        reasons.push(Reason::ParallelLimit { limit });
    }
    if let Some(budget) = workflow.budget.filter(|_| workflow.overspent()) {
        reasons.push(Reason::Budget { budget, spent: workflow.spent });
    }
    for (dependency, status) in dependencies {
        if dependency.holds_back(*status) {
            reasons.push(Reason::Blocked { on: dependency.on.clone(), kind: dependency.kind, status: *status });
        }
    }
    for gate in gates.iter().filter(|gate| gate.closed(now)) {
        reasons.push(Reason::Gate { waits_for: gate.to_string() });
    }
    if let Some(at) = task.state.not_before.filter(|at| *at > now) {
        reasons.push(Reason::NotBefore { at });
    }
    if task.state.attempt >= task.spec.max_attempts {
        reasons.push(Reason::AttemptsUsed { attempts: task.spec.max_attempts });
    }
    reasons
}

/// The order of ready work: what is assigned to the claimer, what labels put first, priority, how many wait for it, age, plan order, id.
#[must_use]
pub fn rank(task: &Task) -> String {
    let rank = place_in_order(
        QueueClass::of(&task.spec.labels),
        task.spec.priority,
        task.state.unblocks,
        task.created,
        task.order,
        task.id.as_str(),
    );
    if task.spec.assigned_to.is_some() { assigned_rank(&rank) } else { rank }
}

/// The place of work that is assigned to the agent that looks: before all other work.
#[must_use]
pub fn assigned_rank(rank: &str) -> String {
    // `!` sorts before everything that a rank begins with.
    format!("!{rank}")
}

/// The rank as sortable text; tasks and issues share it.
pub(crate) fn place_in_order(
    turn: QueueClass,
    priority: u8,
    unblocks: u32,
    written: Timestamp,
    order: u32,
    id: &str,
) -> String {
    let (wanted, written) = (u32::MAX - unblocks, written.0.max(0));
    // `-` sorts before every digit, `~` after.
    let (before, after) = match turn {
        QueueClass::Baseline => ("-", ""),
        QueueClass::Blocker => ("0", ""),
        QueueClass::Planned => ("1", ""),
        QueueClass::Related => ("1", "~"),
    };
    format!("{before}{priority}{after}{wanted:08x}{written:011x}{order:06x}{id}")
}

/// Where a task queues: the lane and rank derived from its facts, or nowhere.
#[must_use]
pub fn entry(task: &Task, workflow: &Workflow, gates: &[Gate], now: Timestamp) -> Option<QueueEntry> {
    if workflow.status != WorkflowStatus::Running
        || !matches!(task.state.status, TaskStatus::Pending | TaskStatus::Waiting)
        || task.state.open_blockers > 0
        || task.state.attempt >= task.spec.max_attempts
    {
        return None;
    }
    let mut opens = task.state.not_before.unwrap_or_default();
    for gate in gates {
        opens = opens.max(gate.opens_at()?);
    }
    let (lane, rank) = if opens > now {
        (timers(&home(task.repository().map(|id| id.as_str()))), later_rank(opens, task.id.as_str()))
    } else {
        (lane(task, workflow), rank(task))
    };
    let labels: BTreeSet<String> = task.spec.labels.iter().cloned().collect();
    Some(QueueEntry {
        task: task.id.clone(),
        lane,
        rank,
        workflow: task.workflow.clone(),
        worktree: task.place.worktree.clone(),
        labels: labels.into_iter().collect(),
    })
}

/// The lane of a repository's ready tasks.
#[must_use]
pub fn home(repository: Option<&str>) -> String {
    repository.unwrap_or("-").to_owned()
}

/// Tasks that are assigned or require different capabilities are in different lanes, so that a claim skips no task that
/// its agent cannot do.
fn lane(task: &Task, workflow: &Workflow) -> String {
    let home = home(task.repository().map(|id| id.as_str()));
    let common = if workflow.limited() { workflow_lane(&home, &workflow.id) } else { home };
    let base = task.spec.assigned_to.as_ref().map_or_else(|| common.clone(), |name| assigned_lane(&common, name));
    let requires: BTreeSet<&String> = task.spec.requires.iter().collect();
    if requires.is_empty() { base } else { format!("{}{}", requiring(&base), serde_json::json!(requires)) }
}

/// The lane of a limited workflow's ready tasks.
pub(crate) fn workflow_lane(home: &str, workflow: &WorkflowId) -> String {
    format!("{home}/{workflow}")
}

/// The lane of tasks that are assigned to an agent and would otherwise be in `base`. No agent's name contains a `+`.
pub(crate) fn assigned_lane(base: &str, agent: &str) -> String {
    format!("{base}@{agent}")
}

/// The agent that the tasks of a lane are assigned to.
pub(crate) fn assignee(lane: &str) -> Option<&str> {
    lane.split('+').next()?.split_once('@').map(|(_, name)| name)
}

/// The prefix of lanes whose tasks require capabilities and would otherwise be in `base`.
pub(crate) fn requiring(base: &str) -> String {
    format!("{base}+")
}

/// The capabilities that the tasks of a lane require.
pub(crate) fn required(lane: &str) -> Vec<String> {
    lane.split_once('+').and_then(|(_, tags)| serde_json::from_str(tags).ok()).unwrap_or_default()
}

/// The lane of a repository's timers, by its [`home`].
#[must_use]
pub fn timers(home: &str) -> String {
    format!("{home}~")
}

/// Whether a lane holds timers instead of ready tasks.
#[must_use]
pub fn holds_timers(lane: &str) -> bool {
    lane.ends_with('~')
}

/// Timers of a lower rank have run out.
#[must_use]
pub fn ran_out_below(now: Timestamp) -> String {
    later_rank(Timestamp(now.0 + 1), "")
}

fn later_rank(at: Timestamp, rest: &str) -> String {
    format!("{:011x}{rest}", at.0.max(0))
}

/// Maximum number of expired timers that one query reads.
pub(crate) const DUE_AT_ONCE: usize = 256;

/// Tasks whose timer has expired and that are still queued under it.
pub(crate) fn due(tx: &mut dyn StoreTx, scope: &Scope, now: Timestamp) -> Result<Vec<Task>> {
    let upto = ran_out_below(now);
    let mut due = Vec::new();
    for home in homes(tx, scope)? {
        let lanes = [timers(&home)];
        let scan = QueueScan {
            lanes: &lanes,
            key: &QueueKey::All,
            after: "",
            upto: Some(&upto),
            limit: DUE_AT_ONCE,
            taking: false,
        };
        let found = tx.queued(&scan)?;
        due.extend(found.into_iter().map(|(_, task)| task));
    }
    Ok(due)
}

/// When the next timer in scope expires.
pub(crate) fn next_timer(tx: &mut dyn StoreTx, scope: &Scope) -> Result<Option<Timestamp>> {
    let mut next: Option<Timestamp> = None;
    for home in homes(tx, scope)? {
        let lanes = [timers(&home)];
        let scan = QueueScan { lanes: &lanes, key: &QueueKey::All, after: "", upto: None, limit: 1, taking: false };
        for (entry, _) in tx.queued(&scan)? {
            let at = i64::from_str_radix(&entry.rank[..11], 16).map(Timestamp).unwrap_or_default();
            next = Some(next.map_or(at, |known| known.min(at)));
        }
    }
    Ok(next)
}

/// Tasks in scope whose timer is running, up to a number.
pub(crate) fn timed(tx: &mut dyn StoreTx, scope: &Scope) -> Result<Vec<Task>> {
    let mut timed = Vec::new();
    for home in homes(tx, scope)? {
        let lanes = [timers(&home)];
        let limit = DUE_AT_ONCE;
        let scan = QueueScan { lanes: &lanes, key: &QueueKey::All, after: "", upto: None, limit, taking: false };
        timed.extend(tx.queued(&scan)?.into_iter().map(|(_, task)| task));
    }
    Ok(timed)
}

/// The repositories in scope, as lanes name them.
pub(crate) fn homes(tx: &mut dyn StoreTx, scope: &Scope) -> Result<Vec<String>> {
    Ok(match &scope.repository {
        Some(repository) => vec![home(Some(repository.as_str()))],
        None => {
            let mut homes = vec![home(None)];
            homes.extend(tx.repositories()?.into_iter().map(|repository| home(Some(repository.id.as_str()))));
            homes
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stage, now_at};

    /// Judges a ready task, a changed copy of it, and a copy of its workflow.
    fn judge(change: impl Fn(&mut Task, &mut Workflow)) -> (Vec<Reason>, Option<QueueEntry>) {
        let made = Stage::memory().flow("Ship", &["build"]);
        let (mut task, mut workflow) = (made.tasks[0].clone(), made.workflow);
        change(&mut task, &mut workflow);
        let now = now_at(0).wall;
        (reasons(&task, &workflow, &[], &[], now), entry(&task, &workflow, &[], now))
    }

    #[test]
    fn task_is_queued_only_while_its_workflow_runs() {
        assert!(judge(|_, _| ()).1.is_some());
        assert!(judge(|_, workflow| workflow.status = WorkflowStatus::Paused).1.is_none());
    }

    #[test]
    fn task_without_attempts_left_is_not_queued_and_says_so() {
        let (reasons, entry) = judge(|task, _| task.state.attempt = task.spec.max_attempts);
        assert!(matches!(reasons[..], [Reason::AttemptsUsed { .. }]), "{reasons:?}");
        assert!(entry.is_none());
        let (reasons, entry) = judge(|task, _| task.state.attempt = task.spec.max_attempts - 1);
        assert!(reasons.is_empty() && entry.is_some(), "the last attempt is its own");
    }

    #[test]
    fn timer_is_over_at_its_time() {
        let is_timed = |ms: i64| {
            let (reasons, entry) = judge(|task, _| task.state.not_before = Some(now_at(ms).wall));
            let is_timed = holds_timers(&entry.unwrap().lane);
            assert_eq!(reasons.is_empty(), !is_timed, "the queue says what the reasons say");
            is_timed
        };
        assert_eq!([0, 1].map(is_timed), [false, true]);
    }

    #[test]
    fn assigned_task_is_before_every_other() {
        let rank_of = |label: &str, priority: u8, assigned_to: Option<&str>| {
            let change = |task: &mut Task, _: &mut Workflow| {
                task.spec.labels = vec![label.to_owned()];
                task.spec.priority = priority;
                task.spec.assigned_to = assigned_to.map(str::to_owned);
            };
            judge(change).1.unwrap().rank
        };
        assert!(rank_of("discovered:related", 4, Some("ann")) < rank_of("baseline-failure", 0, None));
    }
}
