//! Ready: what can start now, and why the rest cannot.

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext, assign, issue::Offer, sweep};
use crate::{
    flow::{Task, TaskStatus},
    lease::LeaseStatus,
    may::May,
    queue::{Filter, Queue},
    ready::{self, Reason},
    refusal::VerbResult,
    repository::Scope,
    schema::JsonSchema,
    store::{Access, LeasesOf, TaskQuery},
    time::Timestamp,
    token::TokenRole,
};

/// Tasks and issues that can start now, best first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReadyRequest")]
#[serde(default)]
pub struct Request {
    pub scope: Scope,
    /// Only tasks with all of these labels.
    pub labels: Vec<String>,
    /// Maximum number of rows.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
    /// Also explain why open tasks cannot start.
    pub explain: bool,
    /// Only tasks that the caller's capabilities allow.
    pub mine: bool,
    /// Issues that can be started, best first.
    pub offers: Vec<Offer>,
}

/// What can start, and what cannot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReadyOutcome")]
pub struct Outcome {
    /// Ready, best first.
    pub ready: Vec<Item>,
    /// There are more.
    pub more: bool,
    /// Open tasks that cannot start, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
}

/// A task of a running workflow, or an issue without a workflow, that can start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ReadyItem")]
pub enum Item {
    /// A task.
    Task(Box<Task>),
    /// An issue.
    Issue(Box<Offer>),
}

impl Item {
    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Task(task) => task.id.as_str(),
            Self::Issue(offer) => &offer.issue.id,
        }
    }

    /// Its name or title.
    pub fn name(&self) -> &str {
        match self {
            Self::Task(task) => &task.spec.name,
            Self::Issue(offer) => &offer.issue.title,
        }
    }

    /// Its rank in the order of ready work.
    pub fn rank(&self) -> String {
        match self {
            Self::Task(task) => ready::rank(task),
            Self::Issue(offer) => offer.rank.clone(),
        }
    }

    /// Removes the data that is only needed for sorting.
    #[must_use]
    pub fn without_rank(mut self) -> Self {
        if let Self::Issue(offer) = &mut self {
            offer.rank.clear();
        }
        self
    }
}

/// Whether a task may become ready for an agent without a further request: a task is held, or the timer of one that it may
/// take is running.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReadyStirring")]
pub struct Stirring {
    #[serde(default)]
    pub scope: Scope,
    /// It takes only tasks with all of these labels.
    #[serde(default)]
    pub labels: Vec<String>,
}

impl Verb for Stirring {
    type Outcome = bool;
    const NAME: &'static str = "stirring";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<bool> {
        let leases = work.tx.leases(&LeasesOf::Repository(self.scope.repository.clone()))?;
        let held = leases.iter().any(|lease| lease.standing(&work.now, work.processes) == LeaseStatus::Live);
        if held || ready::next_timer(work.tx, &self.scope)?.is_none() {
            return Ok(held);
        }
        let can = work.tx.agent_named(work.actor)?.map(|me| me.capabilities).unwrap_or_default();
        let mine = |task: &Task| {
            task.lacking(&can).is_empty()
                && !task.reviews_work_of(work.actor)
                && self.labels.iter().all(|label| task.spec.labels.contains(label))
        };
        Ok(ready::timed(work.tx, &self.scope)?.iter().any(mine))
    }
}

/// A task and why it cannot start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NotReadyTask")]
pub struct NotReady {
    pub task: Task,
    /// Every reason why it cannot start.
    pub reasons: Vec<Reason>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "ready";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let me = work.tx.agent_named(work.actor)?;
        let assigned = me.as_ref().filter(|me| me.assigned).map(|me| me.name.clone());
        let can = me.map(|me| me.capabilities).unwrap_or_default();
        let filter = Filter { mine: assigned.as_deref(), ..self.filter(self.mine.then_some(can.as_slice())) };
        let mut queue = Queue::open(work.tx, filter, self.limit.clamp(1, 64) + 1)?;
        queue.join(self.due(work)?);
        queue.join(freed(work)?);
        queue.join(assign::stranded(work, &self.scope)?.into_iter().map(Task::unassigned).collect());
        let mut ready = Vec::new();
        let mut offers = self.offers.iter().filter(|offer| offer.listed(&self.labels, &[], self.mine)).peekable();
        let mut head = None;
        while ready.len() <= self.limit {
            if head.is_none() {
                head = queue.next(work.tx)?;
            }
            if let Some(offer) = offers.next_if(|offer| head.as_ref().is_none_or(|(rank, _)| offer.rank < *rank)) {
                if work.tx.workflow_of_issue(&offer.issue.id)?.is_none()
                    && offer.kept_for(work, work.actor)?.is_none()
                    && (!self.mine || offer.can_start(work)?)
                {
                    let shown = Offer { said_at: Timestamp::default(), ..offer.clone() };
                    ready.push(Item::Issue(Box::new(shown)));
                }
                continue;
            }
            let Some((_, task)) = head.take() else { break };
            let startable = task.lacking(&can).is_empty() && !task.reviews_work_of(work.actor);
            if filter.fits(&task) && (!self.mine || startable) {
                ready.push(Item::Task(Box::new(task)));
            }
        }
        let more = ready.len() > self.limit || queue.cut_after().is_some();
        ready.truncate(self.limit);
        let not_ready = if self.explain { self.explain(work)? } else { Vec::new() };
        Ok(Outcome { ready, more, not_ready })
    }
}

impl Request {
    fn filter<'a>(&'a self, capabilities: Option<&'a [String]>) -> Filter<'a> {
        Filter { scope: &self.scope, workflow: None, labels: &self.labels, without: &[], capabilities, mine: None }
    }

    /// Tasks whose timer has expired, of workflows with free capacity.
    fn due(&self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Task>> {
        let mut due = Vec::new();
        for task in ready::due(work.tx, &self.scope, work.now.wall)? {
            if work.require_workflow(&task.workflow)?.has_room() {
                due.push(task);
            }
        }
        Ok(due)
    }

    fn explain(&self, work: &mut VerbContext<'_>) -> VerbResult<Vec<NotReady>> {
        let open = [TaskStatus::Pending, TaskStatus::Leased, TaskStatus::Running, TaskStatus::Waiting];
        let query = TaskQuery { scope: self.scope.clone(), statuses: open.to_vec(), ..TaskQuery::default() };
        let mut not_ready = Vec::new();
        for task in work.tx.tasks(&query)? {
            if not_ready.len() >= self.limit {
                break;
            }
            let unassigned = task.clone().unassigned();
            if !self.filter(None).fits(&unassigned) {
                continue;
            }
            let reasons = why(work, &task)?;
            if !reasons.is_empty() {
                not_ready.push(NotReady { task, reasons });
            }
        }
        Ok(not_ready)
    }
}

/// Tasks with a lost lease, which the next claim would free.
fn freed(work: &mut VerbContext<'_>) -> VerbResult<Vec<Task>> {
    let mut freed = Vec::new();
    for (lease, _) in sweep::look(work, true)?.lost {
        freed.extend(free_task(work, &lease.task)?);
    }
    Ok(freed)
}

/// The task as it would be once its lost hold is taken back, if it could start then.
pub(super) fn free_task(work: &mut VerbContext<'_>, id: &crate::id::TaskId) -> VerbResult<Option<Task>> {
    let Some(mut task) = work.tx.task(id)? else { return Ok(None) };
    task.state = sweep::after_loss(&task, work.now.wall);
    let mut workflow = work.require_workflow(&task.workflow)?;
    workflow.full = false;
    let dependencies = work.tx.dependencies(id)?;
    let reasons = ready::reasons(&task, &workflow, &dependencies, &[], work.now.wall);
    Ok(reasons.is_empty().then_some(task))
}

/// Why a task cannot start now; empty if it can.
pub(super) fn why(work: &mut VerbContext<'_>, task: &Task) -> VerbResult<Vec<Reason>> {
    let workflow = work.require_workflow(&task.workflow)?;
    let dependencies = work.tx.dependencies(&task.id)?;
    let gates = work.tx.gates(&task.id)?;
    let mut reasons = ready::reasons(task, &workflow, &dependencies, &gates, work.now.wall);
    if let Some(to) = task.spec.assigned_to.clone().filter(|_| task.assigned_elsewhere(work.actor))
        && !task.state.status.held()
        && assign::is_awaited(work, &to)?
    {
        reasons.push(Reason::Assigned { to });
    }
    Ok(reasons)
}
