//! Audit: checks the invariants of the store. Used by `doctor`, and after every step of the property tests.

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext};
use crate::{
    flow::{DependencyKind, Task, TaskStatus, WorkflowStatus},
    may::May,
    ready,
    refusal::VerbResult,
    schema::JsonSchema,
    store::{Access, EventQuery, LeasesOf, TaskQuery, WorkflowQuery},
    token::TokenRole,
};

/// Check the invariants on every task and workflow that has not ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditRequest")]
#[serde(default)]
pub struct Request {
    /// Number of the newest events to check.
    pub events: usize,
}

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditOutcome")]
pub struct Outcome {
    /// Number of tasks that were checked.
    pub tasks: usize,
    /// A description of each broken invariant.
    pub broken: Vec<String>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "audit";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let mut broken = Vec::new();
        let open = TaskStatus::ALL.into_iter().filter(|status| status.open()).collect();
        let tasks = work.tx.tasks(&TaskQuery { statuses: open, ..TaskQuery::default() })?;
        for task in &tasks {
            one_hold(work, task, &mut broken)?;
            derived_facts(work, task, &mut broken)?;
            reachable(work, task, &mut broken)?;
        }
        for lease in work.tx.leases(&LeasesOf::Repository(None))? {
            if !work.tx.task(&lease.task)?.is_some_and(|task| task.state.status.held()) {
                broken.push(format!("{} has a lease but is not held", lease.task));
            }
        }
        rooms(work, &mut broken)?;
        let events = work.tx.events(&EventQuery { newest: true, limit: self.events, ..EventQuery::default() })?;
        for pair in events.windows(2) {
            // One that a wrong clock dated after its successor outlives those around it.
            if pair[1].seq != pair[0].seq + 1 && pair[0].at <= pair[1].at {
                broken.push(format!("events jump from {} to {}", pair[0].seq, pair[1].seq));
            }
        }
        Ok(Outcome { tasks: tasks.len(), broken })
    }
}

/// A held task has exactly one live lease and one open attempt, with the newest fence; other tasks have neither.
fn one_hold(work: &mut VerbContext<'_>, task: &Task, broken: &mut Vec<String>) -> VerbResult<()> {
    let lease = work.tx.lease(&task.id)?;
    let attempts = work.tx.attempts(&task.id)?;
    let open: Vec<_> = attempts.iter().filter(|attempt| attempt.ended.is_none()).collect();
    let sound = match &lease {
        Some(lease) => {
            task.state.status.held()
                && open.len() == 1
                && open[0].fence() == lease.fence
                && lease.fence.number == task.state.fence
        }
        None => !task.state.status.held() && open.is_empty(),
    };
    if !sound {
        broken.push(format!(
            "{} is {} with {} lease and {} open attempts",
            task.id,
            task.state.status.as_str(),
            if lease.is_some() { "a" } else { "no" },
            open.len()
        ));
    }
    if attempts.iter().map(|attempt| attempt.fence).max().unwrap_or(0) > task.state.fence {
        broken.push(format!("{} had a higher fence than it remembers", task.id));
    }
    Ok(())
}

/// Derived values are equal to what they are derived from.
fn derived_facts(work: &mut VerbContext<'_>, task: &Task, broken: &mut Vec<String>) -> VerbResult<()> {
    let blockers =
        work.tx.dependencies(&task.id)?.iter().filter(|(dependency, status)| dependency.holds_back(*status)).count();
    if blockers != task.state.open_blockers as usize {
        broken.push(format!("{} has {blockers} blockers and counts {}", task.id, task.state.open_blockers));
    }
    let waiters = work.tx.dependents(&task.id)?.iter().filter(|row| row.kind == DependencyKind::Blocks).count();
    if waiters != task.state.unblocks as usize {
        broken.push(format!("{} has {waiters} dependents and counts {}", task.id, task.state.unblocks));
    }
    let workflow = work.require_workflow(&task.workflow)?;
    let gates = work.tx.gates(&task.id)?;
    let derived = ready::entry(task, &workflow, &gates, work.now.wall);
    let stored = work.tx.queue_entry(&task.id)?;
    let timer_ran_out = stored.as_ref().is_some_and(|entry| ready::holds_timers(&entry.lane)) && derived.is_some();
    if stored != derived && !timer_ran_out {
        broken.push(format!("{} queues as {stored:?} and should as {derived:?}", task.id));
    }
    Ok(())
}

/// Every open task is either offered by a query or freed by a rule.
fn reachable(work: &mut VerbContext<'_>, task: &Task, broken: &mut Vec<String>) -> VerbResult<()> {
    let workflow = work.require_workflow(&task.workflow)?;
    if workflow.status.finished() {
        broken.push(format!("{} is open in a workflow that is {}", task.id, workflow.status.as_str()));
    }
    if task.state.status.open() && task.state.attempt >= task.spec.max_attempts {
        broken.push(format!("{} is open with all attempts used", task.id));
    }
    if task.state.status == TaskStatus::Pending && workflow.status == WorkflowStatus::Running {
        let queued = work.tx.queue_entry(&task.id)?.is_some();
        if !queued && task.state.open_blockers == 0 {
            broken.push(format!("{} waits for nothing and is not offered", task.id));
        }
    }
    Ok(())
}

fn rooms(work: &mut VerbContext<'_>, broken: &mut Vec<String>) -> VerbResult<()> {
    for workflow in work.tx.workflows(&WorkflowQuery::default())? {
        if let Some(limit) = workflow.max_parallel {
            let held = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?.len();
            if held > limit as usize || workflow.full != (held >= limit as usize) {
                broken.push(format!("{} holds {held} of {limit} and says full: {}", workflow.id, workflow.full));
            }
        }
    }
    Ok(())
}
