//! Finish: end the lease on a task as done, failed, released, handed off, or waiting for a gate.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find, land, save};
use crate::{
    change::Write,
    checkpoint::CheckpointKind,
    flow::{
        AttemptResult, Dependency, DependencyKind, Evidence, Outcome as TaskOutcome, Report, Task, TaskStatus,
        Verified, Workflow, WorkflowStatus, end_lease, given_back, ledger_changed, place_in_queue, propagate, retry_at,
    },
    gate::{Gate, GateKind},
    id::{GateId, TaskId, WorkflowId},
    landing::{Landing, LandingOffer},
    lease::Fence,
    may::May,
    message::{Address, HUMAN, MessageKind},
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::{Access, Prefetch},
    token::TokenRole,
};

/// The highest cost of an attempt: sums of costs stay numbers.
const MOST_COST: f64 = 1e9;

/// Answers that an agent may propose.
const MOST_CHOICES: usize = 9;

/// End a lease on a task.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FinishRequest")]
#[serde(default)]
pub struct Request {
    /// The task, by id or prefix; `@` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The fence; that of the caller's own lease if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// How it ends.
    pub how: How,
    pub message: String,
    /// Answers that a person may choose from, if a person has to answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The observations of its runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// The commits of work that is done, if they have to land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<LandingOffer>,
    /// Commands that verified the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<Verified>,
}

/// How a lease ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Done; requires evidence.
    Done(Evidence),
    /// Failed; retried later, until all attempts are used.
    Failed,
    /// Released without a result.
    #[default]
    Release,
    /// Released with the message as a checkpoint for the next holder.
    Handoff,
    /// Released until a gate opens.
    Waiting(WaitFor),
}

/// What a task waits for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// A person's answer to the message.
    Human,
    /// A duration.
    #[serde(rename = "timer_ms", with = "crate::time::as_millis")]
    #[schemars(with = "u64")]
    Timer(std::time::Duration),
    /// A command that must succeed.
    Command(String),
    /// Another task, by id or prefix: becomes a dependency.
    Task(String),
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FinishOutcome")]
pub struct Outcome {
    /// The task afterwards.
    pub task: Task,
    pub workflow: WorkflowId,
    #[serde(default)]
    pub workflow_title: String,
    pub workflow_status: WorkflowStatus,
    /// Tasks that waited only for this one.
    pub unblocked: Vec<TaskId>,
    /// The gate that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// The issue that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// Its commits, which are to land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<Landing>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "finish";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> =
        May::of(TokenRole::Worker).or_agent(|request, job| job.proves(request.fence.as_ref(), request.id.as_deref()));
    const ENDS: bool = true;

    fn prefetch<'a>(&'a self, _actor: &'a str) -> Prefetch<'a> {
        Prefetch::Hold { task: self.id.as_deref().unwrap_or_default() }
    }

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let task = find::task(work, self.id.as_deref().unwrap_or("@"))?;
        if let (How::Done(_), Some(reviewed)) = (&self.how, &task.spec.reviews) {
            let wanted = format!("toft review {} --approve or --return ends it", reviewed.landing);
            return Err(Refusal::WrongState { id: task.id.to_string(), state: "a review".into(), wanted }.into());
        }
        self.end(work, task)
    }
}

impl Request {
    /// Ends the lease.
    pub(super) fn end(mut self, work: &mut VerbContext<'_>, mut task: Task) -> VerbResult<Outcome> {
        let lease = work.require_hold(&task.id, self.fence.as_ref())?;
        if let How::Done(Evidence::Commit(text) | Evidence::Artifact(text) | Evidence::NoChange(text)) = &self.how
            && text.trim().is_empty()
        {
            return Err(Refusal::NeedsEvidence.into());
        }
        self.check()?;
        self.require_verified(work)?;
        self.once_too_often(work, &mut task)?;
        if matches!(self.how, How::Handoff) {
            let note = save::Request {
                id: Some(task.id.to_string()),
                fence: Some(lease.fence.clone()),
                message: Some(self.message.clone()),
                kind: CheckpointKind::Handoff,
                ..save::Request::default()
            };
            note.run(work)?;
        }
        let from = task.state.status;
        let (result, verb) = self.judge(work, &mut task);
        task.state.updated = work.now.wall;
        let reason = (!self.message.is_empty()).then(|| self.message.clone());
        let mut writes = end_lease(work, &lease, result, reason, Some((self.cost, self.report.clone())))?;
        // Who gives work back that was assigned leaves it to everyone.
        let given_back = matches!(self.how, How::Release | How::Handoff) && task.spec.assigned_to.take().is_some();
        writes.push(match given_back {
            true => Write::Task(task.clone()),
            false => Write::TaskState(task.id.clone(), task.state.clone()),
        });
        let gate = self.gate(work, &mut task, &mut writes)?;
        work.record(
            task.id.as_str(),
            verb,
            json!({ "fence": lease.fence.number, "message": self.message, "status": task.state.status, "gate": gate.as_ref().map(|gate| &gate.id) }),
            writes,
        )?;
        self.ask_human(work, &task)?;
        self.spend(work, &task)?;
        if task.state.status.open() {
            let mut workflow = work.require_workflow(&task.workflow)?;
            ledger_changed(work, &mut workflow)?;
            place_in_queue(work, &task, &workflow)?;
        }
        let landing = match self.offer.take().filter(|_| task.state.status == TaskStatus::Done) {
            Some(offer) => land::offer(work, &task, offer)?,
            None => {
                if task.state.status == TaskStatus::Done {
                    land::withdraw_bounced(work, &task.id)?;
                }
                None
            }
        };
        let workflow = propagate(work, &task, from)?;
        let frees = task.state.status.releases() && task.state.unblocks > 0;
        let unblocked = if frees { unblocked(work, &task)? } else { Vec::new() };
        let issue = workflow.issue().map(str::to_owned);
        let Workflow { id: workflow, title: workflow_title, status: workflow_status, .. } = workflow;
        Ok(Outcome { task, workflow, workflow_title, workflow_status, unblocked, gate, issue, landing })
    }
}

impl Request {
    /// Turns a release into a failure if agents of runners released the task as often as it may be attempted; otherwise
    /// it would never end.
    fn once_too_often(&mut self, work: &mut VerbContext<'_>, task: &mut Task) -> VerbResult<()> {
        let by_itself = self.report.as_ref().is_some_and(|report| !report.ending.not_by_the_task());
        if by_itself && matches!(self.how, How::Release | How::Handoff) {
            let times = given_back(&work.tx.attempts(&task.id)?) + 1;
            if times >= task.spec.max_attempts as usize {
                self.how = How::Failed;
                self.message = format!("released {times} times: {}", self.message);
                task.state.attempt = task.spec.max_attempts.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Refuses a commit that was not verified.
    fn require_verified(&self, work: &VerbContext<'_>) -> Result<(), Refusal> {
        let How::Done(Evidence::Commit(commit)) = &self.how else { return Ok(()) };
        let verified = |command: &&String| {
            let mut runs = self.verified.iter().filter(|run| run.command == **command && run.commit == *commit);
            runs.any(|run| run.exit == 0)
        };
        match work.policy.verify.iter().find(|command| !verified(command)) {
            Some(command) => Err(Refusal::Unverified { command: command.clone() }),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let invalid = |field: &str, problem: &str| Refusal::Invalid { field: field.into(), problem: problem.into() };
        if self.cost.is_some_and(|cost| !(0.0..=MOST_COST).contains(&cost)) {
            return Err(invalid("cost", "a cost is a number from 0 to a billion"));
        }
        if self.choices.len() > MOST_CHOICES || self.choices.iter().any(|choice| choice.trim().is_empty()) {
            return Err(invalid("choices", "a question has at most 9 choices, and none is empty"));
        }
        let missing = match self.how {
            How::Handoff => "handoff needs a message for the next agent: add -m \"…\"",
            How::Waiting(WaitFor::Human) => "waiting needs a question: add -m \"…\"",
            _ => return Ok(()),
        };
        if self.message.trim().is_empty() {
            return Err(invalid("message", missing));
        }
        Ok(())
    }

    fn judge(&self, work: &VerbContext<'_>, task: &mut Task) -> (AttemptResult, &'static str) {
        let outcome = |evidence: Option<&Evidence>| TaskOutcome {
            summary: self.message.clone(),
            evidence: evidence.cloned(),
            verified: self.verified.clone(),
        };
        match &self.how {
            How::Done(evidence) => {
                task.state.status = TaskStatus::Done;
                task.state.outcome = Some(outcome(Some(evidence)));
                (AttemptResult::Done, "task.done")
            }
            How::Failed => {
                task.state.attempt += 1;
                task.state.outcome = Some(outcome(None));
                if task.state.attempt >= task.spec.max_attempts {
                    task.state.status = TaskStatus::Failed;
                } else {
                    task.state.status = TaskStatus::Pending;
                    task.state.not_before = Some(retry_at(work, task.state.attempt));
                }
                (AttemptResult::Failed, "task.failed")
            }
            How::Release => {
                task.state.status = TaskStatus::Pending;
                (AttemptResult::Released, "task.released")
            }
            How::Handoff => {
                task.state.status = TaskStatus::Pending;
                (AttemptResult::Handoff, "task.handoff")
            }
            How::Waiting(_) => {
                task.state.status = TaskStatus::Waiting;
                (AttemptResult::Waiting, "task.waiting")
            }
        }
    }

    fn gate(&self, work: &mut VerbContext<'_>, task: &mut Task, writes: &mut Vec<Write>) -> VerbResult<Option<Gate>> {
        let How::Waiting(wait) = &self.how else { return Ok(None) };
        let kind = match wait {
            WaitFor::Human => GateKind::Human { question: self.message.clone(), choices: self.choices.clone() },
            WaitFor::Timer(span) => GateKind::Timer { until: work.now.wall.plus(*span) },
            WaitFor::Command(command) => GateKind::Command { command: command.clone() },
            WaitFor::Task(text) => {
                let on = find::task(work, text)?;
                self.wait_for_task(work, task, on, writes)?;
                return Ok(None);
            }
        };
        let gate = Gate {
            id: GateId::generate(work.ids),
            task: task.id.clone(),
            kind,
            asked_by: work.actor.to_owned(),
            place: work.place.clone(),
            created: work.now.wall,
            opened: None,
        };
        writes.push(Write::Gate(gate.clone()));
        Ok(Some(gate))
    }

    /// Turns waiting for a task into a dependency: the task is pending again, with one more blocker.
    fn wait_for_task(
        &self,
        work: &mut VerbContext<'_>,
        task: &mut Task,
        mut on: Task,
        writes: &mut Vec<Write>,
    ) -> VerbResult<()> {
        super::replan::refuse_cycle(work, &on.id, &task.id)?;
        task.state.status = TaskStatus::Pending;
        let known = work.tx.dependencies(&task.id)?;
        if !known.iter().any(|(dependency, _)| dependency.on == on.id && dependency.kind == DependencyKind::Blocks) {
            writes.push(Write::Dependency(Dependency {
                task: task.id.clone(),
                on: on.id.clone(),
                kind: DependencyKind::Blocks,
            }));
            on.state.unblocks += 1;
            writes.push(Write::TaskState(on.id.clone(), on.state.clone()));
            task.state.open_blockers += u32::from(!on.state.status.releases());
        }
        writes.push(Write::TaskState(task.id.clone(), task.state.clone()));
        let workflow = work.require_workflow(&on.workflow)?;
        place_in_queue(work, &on, &workflow)
    }

    fn ask_human(&self, work: &mut VerbContext<'_>, task: &Task) -> VerbResult<()> {
        if matches!(self.how, How::Waiting(WaitFor::Human)) {
            super::send::deliver(
                work,
                &Address::Human,
                MessageKind::Question,
                1,
                &self.message,
                Some(&task.id),
                &[HUMAN.into()],
            )?;
        }
        Ok(())
    }

    fn spend(&self, work: &mut VerbContext<'_>, task: &Task) -> VerbResult<()> {
        if let Some(cost) = self.cost.filter(|cost| *cost > 0.0) {
            let mut workflow = work.require_workflow(&task.workflow)?;
            workflow.spent += cost;
            work.tx.write_derived(&[Write::Workflow(workflow)])?;
        }
        Ok(())
    }
}

fn unblocked(work: &mut VerbContext<'_>, task: &Task) -> VerbResult<Vec<TaskId>> {
    let mut unblocked = Vec::new();
    for dependency in work.tx.dependents(&task.id)? {
        if let Some(waiting) = work.tx.task(&dependency.task)?
            && dependency.kind == DependencyKind::Blocks
            && waiting.state.status == TaskStatus::Pending
            && waiting.state.open_blockers == 0
        {
            unblocked.push(waiting.id);
        }
    }
    Ok(unblocked)
}
