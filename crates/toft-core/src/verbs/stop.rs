//! Stop: end one agent's work now, and release its task or park it.
//!
//! A runner reads the stop order from the open attempt when it renews. The lease remains until the agent has ended, so
//! that no other agent starts in the meantime. A lease without a runner is revoked immediately.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find, finish};
use crate::{
    agent::Agent,
    change::Write,
    flow::{
        Attempt, AttemptResult, Outcome as TaskOutcome, Report, StopOrder, TaskStatus, Workflow, end_lease,
        ledger_changed, place_in_queue, propagate,
    },
    id::TaskId,
    lease::{Fence, Lease, LeaseStatus},
    may::May,
    refusal::{Refusal, VerbError as No, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, LeasesOf},
    time::Timestamp,
    token::TokenRole,
};

/// Stop the work on a task.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StopRequest")]
#[serde(default)]
pub struct Request {
    /// A task, an issue, or the agent that holds one, by id, prefix or name.
    pub id: String,
    /// The task fails for good and waits for a person, instead of being released.
    pub park: bool,
    pub reason: String,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StopOutcome")]
pub struct Outcome {
    pub task: TaskId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// The agent that held it.
    pub agent: String,
    /// The fence of the lease.
    pub fence: Fence,
    /// Its runner was ordered to end the agent; if false, the lease was revoked.
    pub told: bool,
    /// When the lease ends at the latest if its runner does not respond.
    pub expires: Timestamp,
    /// The task afterwards, if the lease was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Box<finish::Outcome>>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "stop";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let lease = held(work, &self.id)?;
        let agent = work.tx.agent(&lease.agent)?;
        if agent.as_ref().is_none_or(|agent| agent.name != work.actor) {
            rights::require(work, Action::Stop)?;
        }
        let order = StopOrder { by: work.actor.to_owned(), park: self.park, reason: self.reason };
        let Some(task) = work.tx.task(&lease.task)? else { return Err(nobody(&self.id, "gone")) };
        let workflow = work.require_workflow(&task.workflow)?;
        let told = lease.holder.is_some() && agent.as_ref().is_some_and(Agent::runs_agents);
        let ended = match told {
            true => {
                tell(work, &lease, &order)?;
                None
            }
            false => Some(Box::new(end(work, &lease, &order, None)?)),
        };
        Ok(Outcome {
            task: task.id,
            name: task.spec.name,
            issue: workflow.issue().map(str::to_owned),
            agent: agent.map_or_else(|| lease.agent.to_string(), |agent| agent.name),
            expires: lease.expires(),
            fence: lease.fence,
            told,
            ended,
        })
    }
}

/// End a lease after its agent was ended because of a stop order.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StopObey")]
pub struct Obey {
    pub task: TaskId,
    /// The fence of the lease.
    pub fence: Fence,
    /// The runner's observations of the command.
    pub report: Report,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Verb for Obey {
    type Outcome = finish::Outcome;
    const NAME: &'static str = "stop.obey";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<finish::Outcome> {
        let lease = work.require_hold(&self.task, Some(&self.fence))?;
        // The order is what was recorded, whatever a runner says of it.
        let attempts = work.tx.attempts(&self.task)?;
        let order = attempts.iter().find(|attempt| attempt.fence() == lease.fence).and_then(Attempt::stop_order);
        let Some(order) = order else {
            let (state, wanted) = ("held".to_owned(), "nobody ordered it to stop: toft finish ends a lease".to_owned());
            return Err(Refusal::WrongState { id: self.task.to_string(), state, wanted }.into());
        };
        end(work, &lease, &order, Some((self.cost, Some(self.report))))
    }
}

/// The live lease that `text` names.
fn held(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Lease> {
    let lease = match find::task(work, text) {
        Ok(task) => work.tx.lease(&task.id)?.ok_or_else(|| nobody(text, task.state.status.as_str()))?,
        Err(No::Refused(missing @ Refusal::NotFound { .. })) => {
            let Ok(agent) = find::agent(work, text) else { return Err(missing.into()) };
            let mut leases = work.tx.leases(&LeasesOf::Agent(agent.id.clone()))?;
            match leases.len() {
                0 => return Err(Refusal::HoldsNothing { agent: agent.name }.into()),
                1 => leases.remove(0),
                _ => {
                    let candidates = leases.iter().map(|lease| lease.task.to_string()).collect();
                    return Err(Refusal::Ambiguous { text: text.to_owned(), candidates }.into());
                }
            }
        }
        Err(error) => return Err(error),
    };
    match lease.standing(&work.now, work.processes) {
        LeaseStatus::Live => Ok(lease),
        LeaseStatus::Lost(_) => Err(nobody(text, "free")),
    }
}

fn nobody(text: &str, state: &str) -> No {
    let wanted = "no agent holds it, so there is nothing to stop".to_owned();
    Refusal::WrongState { id: text.to_owned(), state: state.to_owned(), wanted }.into()
}

/// Writes the order to the attempt, where the runner reads it.
fn tell(work: &mut VerbContext<'_>, lease: &Lease, order: &StopOrder) -> VerbResult<()> {
    let attempts = work.tx.attempts(&lease.task)?;
    let Some(mut attempt) = attempts.into_iter().find(|attempt| attempt.fence() == lease.fence) else {
        return Err(nobody(lease.task.as_str(), "free"));
    };
    attempt.set_stop_order(order);
    let agent = work.agent_name(&lease.agent)?;
    let detail = json!({ "agent": agent, "park": order.park, "reason": order.reason });
    work.record(lease.task.as_str(), "task.stop_ordered", detail, vec![Write::Attempt(attempt)])
}

/// Ends the lease: the task is free again and no attempt is counted, or it fails for good.
fn end(
    work: &mut VerbContext<'_>,
    lease: &Lease,
    order: &StopOrder,
    seen: Option<(Option<f64>, Option<Report>)>,
) -> VerbResult<finish::Outcome> {
    let Some(mut task) = work.tx.task(&lease.task)? else { return Err(nobody(lease.task.as_str(), "gone")) };
    let from = task.state.status;
    let mut writes = end_lease(work, lease, AttemptResult::Revoked, Some(order.to_string()), seen)?;
    task.state.updated = work.now.wall;
    task.state.status = TaskStatus::Pending;
    if order.park {
        task.state.status = TaskStatus::Failed;
        task.state.attempt = task.state.attempt.max(task.spec.max_attempts);
        task.state.outcome = Some(TaskOutcome { summary: order.to_string(), ..TaskOutcome::default() });
    }
    writes.push(Write::TaskState(task.id.clone(), task.state.clone()));
    let agent = work.agent_name(&lease.agent)?;
    let detail = json!({ "agent": agent, "message": order.to_string(), "status": task.state.status });
    work.record(task.id.as_str(), "task.stopped", detail, writes)?;
    if task.state.status.open() {
        let mut workflow = work.require_workflow(&task.workflow)?;
        ledger_changed(work, &mut workflow)?;
        place_in_queue(work, &task, &workflow)?;
    }
    let workflow = propagate(work, &task, from)?;
    let issue = workflow.issue().map(str::to_owned);
    let Workflow { id: workflow, title: workflow_title, status: workflow_status, .. } = workflow;
    Ok(finish::Outcome {
        task,
        workflow,
        workflow_title,
        workflow_status,
        unblocked: Vec::new(),
        gate: None,
        issue,
        landing: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        testing::Stage,
        verbs::{agent::Register, claim},
    };

    fn stop(park: bool) -> Request {
        Request { id: "slot-1".into(), park, reason: "wrong plan".into() }
    }

    fn claimed(runtime: &str, holder: Option<u32>) -> (Stage, claim::Claimed) {
        let stage = Stage::memory();
        stage.flow("Ship", &["a"]);
        let (name, runtime) = (Some("slot-1".to_owned()), Some(runtime.to_owned()));
        stage.perform("slot-1", Register { name, runtime, ..Register::default() }).unwrap();
        let claimed = match holder {
            Some(pid) => stage.claim_by_process("slot-1", pid),
            None => stage.claim("slot-1"),
        };
        let claimed = claimed.unwrap();
        (stage, claimed)
    }

    #[test]
    fn a_hold_without_a_runner_is_revoked_and_its_fence_is_stale() {
        let (stage, claimed) = claimed("claude", None);
        let outcome = stage.perform("ana", stop(false)).unwrap();
        assert!(!outcome.told && outcome.ended.unwrap().task.state.status == TaskStatus::Pending);
        let fence = Some(claimed.lease.fence());
        let late = finish::Request { id: Some(claimed.task.id.to_string()), fence, ..finish::Request::default() };
        assert!(matches!(stage.perform("slot-1", late), Err(No::Refused(Refusal::FenceStale { .. }))));
        assert!(matches!(stage.perform("ana", stop(false)), Err(No::Refused(Refusal::HoldsNothing { .. }))));
    }

    fn obey(claimed: &claim::Claimed) -> Obey {
        let report = Report {
            ending: crate::flow::Ending::Stopped,
            ran_ms: 1,
            host: "here".into(),
            log: String::new(),
            workspace: String::new(),
            usage: None,
            refused: None,
        };
        Obey { task: claimed.task.id.clone(), fence: claimed.lease.token.clone(), report, cost: None }
    }

    #[test]
    fn stop_that_nobody_ordered_ends_nothing() {
        let (stage, claimed) = claimed("toft run claude", Some(1));
        assert!(matches!(stage.perform("slot-1", obey(&claimed)), Err(No::Refused(Refusal::WrongState { .. }))));
    }

    #[test]
    fn a_runner_is_told_and_its_hold_stands_until_it_obeys() {
        for park in [false, true] {
            let (stage, claimed) = claimed("toft run claude", Some(1));
            assert!(stage.perform("ana", stop(park)).unwrap().told);
            let attempts = crate::store::ask(&*stage.store, |tx| tx.attempts(&claimed.task.id)).unwrap();
            let order = attempts[0].stop_order().unwrap();
            assert_eq!((order.by.as_str(), order.park), ("ana", park));
            let ended = stage.perform("slot-1", obey(&claimed)).unwrap();
            let wanted = if park { TaskStatus::Failed } else { TaskStatus::Pending };
            assert_eq!(ended.task.state.status, wanted);
            assert_eq!(ended.task.state.attempt, if park { ended.task.spec.max_attempts } else { 0 });
        }
    }
}
