//! Claim: take ready work under a lease.
//!
//! A claim names a task, a workflow or an issue, or takes the best ready work in scope. Whatever it names, it ends in
//! `Request::take_lease`, the only place that makes a lease. Everything is one transaction over the task's row, so of
//! two agents that claim at once, one wins and the other claims again on what is left.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Verb, VerbContext, assign, find, flow,
    issue::{Offer, WhyStarted},
    sweep,
};
use crate::{
    agent::{Agent, AgentState},
    change::Write,
    checkpoint::Checkpoint,
    flow::{
        Attempt, AttemptResult, Task, TaskStatus, Workflow, end_lease, ledger_changed, place_in_queue, refresh_room,
    },
    gate::Gate,
    id::{LeaseId, WorkflowId},
    issue::ready::IssueReason,
    landing::{Bounce, Landing},
    lease::{Fence, Holder, Lease, LeaseStatus},
    may::May,
    queue::{Filter, Queue},
    ready::{self, Reason},
    refusal::{Refusal, Unstartable, VerbError, VerbResult},
    repository::Scope,
    schema::JsonSchema,
    store::{Access, LeasesOf, Prefetch, QueueKey},
    time::Timestamp,
    token::TokenRole,
};

/// The most tasks that one claim takes.
const MAX_CLAIMED_TASKS: usize = 100;

/// Claim work: a given task, the best task of a workflow, or the best task in scope.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClaimRequest")]
#[serde(default)]
pub struct Request {
    /// A task or workflow, by id or prefix, or an offered issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Issues that can be started, best first.
    pub offers: Vec<Offer>,
    /// Maximum number of tasks to claim; 0 means one.
    pub count: usize,
    /// Only tasks with all of these labels.
    pub labels: Vec<String>,
    /// Only tasks without any of these labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    pub scope: Scope,
    /// Time to live of the lease, if not the default.
    #[serde(
        default,
        rename = "ttl_ms",
        with = "crate::time::as_optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u64>")]
    pub ttl: Option<Duration>,
    /// Cap for a live but silent process, if not the default.
    #[serde(
        default,
        rename = "cap_ms",
        with = "crate::time::as_optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u64>")]
    pub cap: Option<Duration>,
    /// The process that the lease follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// End the lease of another session of the same agent on the task, and claim it.
    pub take_over: bool,
}

/// The claimed tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClaimOutcome")]
pub struct Outcome {
    /// At least one.
    pub claims: Vec<Claimed>,
}

/// One claimed task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claimed {
    pub task: Task,
    pub lease: Hold,
    pub workflow_title: String,
    /// The issue that it belongs to.
    #[serde(default)]
    pub issue: Option<String>,
    /// The newest checkpoint of an earlier holder, from which to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Checkpoint>,
    /// Questions of earlier holders, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Gate>,
    /// Why the work of an earlier holder was sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<Bounce>,
}

/// The data of a lease that its holder needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// The fence number, which rises with every lease of the task.
    pub fence: u64,
    /// The random id; every write names both.
    pub id: LeaseId,
    /// Both as one token, for `--fence` and `TOFT_FENCE`.
    pub token: Fence,
    /// When it ends unless it is renewed.
    pub expires: Timestamp,
}

impl Hold {
    /// The fence.
    pub fn fence(&self) -> Fence {
        self.token.clone()
    }
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "claim";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);
    const ENDS: bool = true;

    fn prefetch<'a>(&'a self, actor: &'a str) -> Prefetch<'a> {
        // Where one key of the queue is enough, its head comes with the first round trip.
        let key = match &self.id {
            None => self.queue_filter(None, None).only_key(),
            Some(text)
                if text.starts_with(WorkflowId::PREFIX) && self.labels.is_empty() && self.scope.worktree.is_none() =>
            {
                Some(QueueKey::Workflow(WorkflowId::known(text)))
            }
            Some(text) => return Prefetch::Hold { task: text },
        };
        let head = key.map(|key| (key, self.task_limit()));
        Prefetch::Claim { actor, scope: &self.scope, head, leases: sweep::AT_ONCE, timers: ready::DUE_AT_ONCE }
    }

    fn run(self, ctx: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        if self.ttl == Some(Duration::ZERO) {
            let problem = "a lease needs some time to live".into();
            return Err(Refusal::Invalid { field: "ttl".into(), problem }.into());
        }
        let agent = ctx.register_caller()?;
        require_active(&agent)?;
        let mut misses = SearchMisses::default();
        let claims = match self.id.as_deref() {
            None => self.claim_best(ctx, &agent, None, &mut misses)?,
            Some(text) if text.starts_with(WorkflowId::PREFIX) => {
                let workflow = find::workflow(ctx, text)?;
                self.claim_best(ctx, &agent, Some(&workflow), &mut misses)?
            }
            Some(text) => match self.offers.iter().find(|offer| offer.issue.id == text) {
                Some(offer) => self.claim_issue(ctx, &agent, offer, &mut misses)?,
                None => vec![self.claim_task(ctx, &agent, text)?],
            },
        };
        if claims.is_empty() {
            let next = ready::next_timer(ctx.tx, &self.scope)?;
            let SearchMisses { lacking, examined, unstartable } = misses;
            let lacking = lacking.into_iter().collect();
            return Err(Refusal::NothingReady { next, lacking, examined, unstartable }.into());
        }
        Ok(Outcome { claims })
    }
}

/// What a search that found nothing met on the way: its refusal tells.
#[derive(Default)]
struct SearchMisses {
    /// Capabilities that the agent lacks for queued work.
    lacking: BTreeSet<String>,
    /// How many entries were examined, if the search was cut short.
    examined: Option<usize>,
    /// The first issue that cannot be started, for its template or its title.
    unstartable: Option<Unstartable>,
}

fn require_active(agent: &Agent) -> Result<(), Refusal> {
    let state = match agent.state {
        AgentState::Active => return Ok(()),
        AgentState::Draining => "paused",
        AgentState::Gone => "removed",
    };
    Err(Refusal::AgentPaused { agent: agent.name.clone(), state: state.into(), note: agent.note.clone() })
}

/// The ways to claim.
impl Request {
    /// Claims an issue: the best task of its workflow, or the first task of a new workflow.
    fn claim_issue(
        &self,
        ctx: &mut VerbContext<'_>,
        agent: &Agent,
        offer: &Offer,
        misses: &mut SearchMisses,
    ) -> VerbResult<Vec<Claimed>> {
        if let Some(workflow) = ctx.tx.workflow_of_issue(&offer.issue.id)? {
            let claims = self.claim_best(ctx, agent, Some(&workflow), misses)?;
            if claims.is_empty() {
                return Err(refuse_started_issue(ctx, &offer.issue.id, &workflow)?);
            }
            return Ok(claims);
        }
        if let Some(to) = offer.kept_for(ctx, &agent.name)? {
            let reasons = vec![IssueReason::Assigned { to }];
            return Err(Refusal::IssueNotReady { issue: offer.issue.id.clone(), reasons }.into());
        }
        let plan = offer.build(ctx)?;
        Ok(self.start_workflow(ctx, agent, plan)?.into_iter().collect())
    }

    /// Claims one task by id or prefix. A lease on it that was lost, or that this agent may take over, is ended first.
    fn claim_task(&self, ctx: &mut VerbContext<'_>, agent: &Agent, text: &str) -> VerbResult<Claimed> {
        let mut task = find::task(ctx, text)?;
        if let Some(lease) = ctx.tx.lease(&task.id)? {
            self.end_present_lease(ctx, agent, &lease)?;
            task = find::task(ctx, task.id.as_str())?;
        }
        let workflow = ctx.require_workflow(&task.workflow)?;
        let reasons = reasons_against(ctx, agent, &task, &workflow)?;
        if !reasons.is_empty() {
            return Err(Refusal::NotReady { task: task.id, reasons }.into());
        }
        self.take_lease(ctx, agent, task, workflow)
    }

    /// Claims the best ready tasks, of one workflow or in scope. Overdue leases are ended first; only if nothing is ready
    /// then is every process checked, which is slower.
    fn claim_best(
        &self,
        ctx: &mut VerbContext<'_>,
        agent: &Agent,
        only: Option<&Workflow>,
        misses: &mut SearchMisses,
    ) -> VerbResult<Vec<Claimed>> {
        sweep::sweep(ctx, false)?;
        self.queue_due_tasks(ctx)?;
        let claims = self.claim_from_queue(ctx, agent, only, misses)?;
        if !claims.is_empty() {
            return Ok(claims);
        }
        let freed = sweep::sweep(ctx, true)? + assign::free_stranded(ctx, &self.scope)?;
        match freed {
            0 => Ok(claims),
            _ => self.claim_from_queue(ctx, agent, only, misses),
        }
    }

    /// Claims what ranks best, from the queue and from the offered issues.
    fn claim_from_queue(
        &self,
        ctx: &mut VerbContext<'_>,
        agent: &Agent,
        only: Option<&Workflow>,
        misses: &mut SearchMisses,
    ) -> VerbResult<Vec<Claimed>> {
        let mut queue = Queue::take(ctx.tx, self.queue_filter(only, Some(agent)), self.task_limit())?;
        let is_wanted = |offer: &&Offer| only.is_none() && offer.listed(&self.labels, &self.without, true);
        let mut offers = self.offers.iter().filter(is_wanted).peekable();
        let mut claims = Vec::new();
        let mut head = None;
        while claims.len() < self.task_limit() {
            if head.is_none() {
                head = queue.next(ctx.tx)?;
            }
            // Both are sorted by rank: whichever is ahead is claimed.
            let ranks_first = |offer: &&Offer| head.as_ref().is_none_or(|(rank, _)| offer.rank < *rank);
            if let Some(offer) = offers.next_if(ranks_first) {
                claims.extend(self.start_offered_issue(ctx, agent, offer, misses)?);
                continue;
            }
            let Some((_, task)) = head.take() else { break };
            // Nobody reviews their own work.
            if task.reviews_work_of(&agent.name) {
                continue;
            }
            let workflow = ctx.require_workflow(&task.workflow)?;
            if workflow.has_room() {
                claims.push(self.take_lease(ctx, agent, task, workflow)?);
            } else {
                // Its other tasks cannot start either.
                queue.leave_out(&workflow);
            }
        }
        if claims.is_empty() {
            misses.lacking.extend(queue.lacking(ctx.tx)?);
            misses.examined = queue.cut_after();
        }
        Ok(claims)
    }
}

/// The steps of a claim.
impl Request {
    /// Starts the workflow of an issue that nobody has started, and claims its first task. One that cannot be started
    /// keeps nobody from the others.
    fn start_offered_issue(
        &self,
        ctx: &mut VerbContext<'_>,
        agent: &Agent,
        offer: &Offer,
        misses: &mut SearchMisses,
    ) -> VerbResult<Option<Claimed>> {
        // The tasks of an issue that was started are in the queue themselves.
        if ctx.tx.workflow_of_issue(&offer.issue.id)?.is_some() || offer.kept_for(ctx, &agent.name)?.is_some() {
            return Ok(None);
        }
        match offer.build(ctx) {
            Ok(plan) => self.start_workflow(ctx, agent, plan),
            Err(VerbError::Refused(refusal)) => {
                let unstartable = || Unstartable { issue: offer.issue.id.clone(), why: refusal.to_string() };
                misses.unstartable.get_or_insert_with(unstartable);
                Ok(None)
            }
            Err(failed) => Err(failed),
        }
    }

    /// Writes a new workflow and claims the first of its tasks that can start. Writes nothing if none can.
    fn start_workflow(
        &self,
        ctx: &mut VerbContext<'_>,
        agent: &Agent,
        plan: flow::Buildable,
    ) -> VerbResult<Option<Claimed>> {
        let can_start = |task: &Task| task.state.open_blockers == 0 && task.lacking(&agent.capabilities).is_empty();
        if !plan.tasks().iter().any(can_start) {
            return Ok(None);
        }
        let written = plan.make(ctx)?;
        let first = written.tasks.into_iter().find(can_start);
        first.map(|task| self.take_lease(ctx, agent, task, written.workflow)).transpose()
    }

    /// Ends the lease on a task that is claimed by name, or refuses: it is live, and not this agent's to end.
    fn end_present_lease(&self, ctx: &mut VerbContext<'_>, agent: &Agent, lease: &Lease) -> VerbResult<()> {
        // A refusal rolls this back: the sweep that follows it begins the watch.
        ctx.swept += usize::from(lease.due(&ctx.now) && lease.begins_watch(&ctx.now));
        match lease.standing(&ctx.now, ctx.processes) {
            LeaseStatus::Lost(why) => {
                ctx.swept += 1;
                sweep::take_back(ctx, lease, why)
            }
            LeaseStatus::Live if self.take_over && may_take_over(ctx, agent, lease) => hand_over_lease(ctx, lease),
            LeaseStatus::Live if lease.agent == agent.id && !self.is_held_by_caller(ctx, lease) => {
                Err(Refusal::OtherSession { task: lease.task.clone(), agent: agent.name.clone() }.into())
            }
            LeaseStatus::Live => Err(ctx.held(lease)?),
        }
    }

    /// Returns whether this very session holds a lease: it can prove the fence, or is the process that the lease follows.
    fn is_held_by_caller(&self, ctx: &VerbContext<'_>, lease: &Lease) -> bool {
        ctx.holds.contains(&lease.fence) || lease.holder.is_some() && lease.holder == self.holder
    }

    /// Moves tasks whose timer has expired into the ready queue.
    fn queue_due_tasks(&self, ctx: &mut VerbContext<'_>) -> VerbResult<()> {
        for task in ready::due(ctx.tx, &self.scope, ctx.now.wall)? {
            let workflow = ctx.require_workflow(&task.workflow)?;
            place_in_queue(ctx, &task, &workflow)?;
        }
        Ok(())
    }

    /// Gives a task to the agent under a new lease, whose fence makes every older one stale.
    fn take_lease(
        &self,
        ctx: &mut VerbContext<'_>,
        agent: &Agent,
        mut task: Task,
        mut workflow: Workflow,
    ) -> VerbResult<Claimed> {
        let (resume, answers, sent_back) = what_earlier_holders_left(ctx, &task)?;
        task.state.status = TaskStatus::Leased;
        task.state.fence += 1;
        task.state.not_before = None;
        task.state.updated = ctx.now.wall;
        let lease = self.new_lease(ctx, agent, &task);
        let attempt = new_attempt(ctx, &lease);
        let fence = lease.fence.clone();
        let hold = Hold { fence: fence.number, id: fence.id.clone(), token: fence, expires: lease.expires() };
        let writes = vec![
            Write::TaskState(task.id.clone(), task.state.clone()),
            Write::DropQueue(task.id.clone()),
            Write::Lease(lease),
            Write::Attempt(attempt),
        ];
        ctx.record(task.id.as_str(), "claim", json!({ "fence": hold.fence }), writes)?;
        refresh_room(ctx, &mut workflow)?;
        ledger_changed(ctx, &mut workflow)?;
        let issue = workflow.issue().map(str::to_owned);
        Ok(Claimed { task, lease: hold, workflow_title: workflow.title, issue, resume, answers, sent_back })
    }

    fn new_lease(&self, ctx: &mut VerbContext<'_>, agent: &Agent, task: &Task) -> Lease {
        let ttl = self.ttl.unwrap_or(ctx.policy.ttl);
        let mut lease = Lease {
            task: task.id.clone(),
            workflow: task.workflow.clone(),
            repository: task.place.repository.clone(),
            agent: agent.id.clone(),
            fence: Fence { number: task.state.fence, id: LeaseId::generate(ctx.ids) },
            acquired: ctx.now.wall,
            ttl,
            // A silent process keeps a lease at least as long as no process would.
            cap: self.cap.unwrap_or(ctx.policy.cap).max(ttl),
            renewed: ctx.now.wall,
            renewed_tick: ctx.now.tick.clone(),
            seen: Vec::new(),
            check_at: 0,
            holder: self.holder.clone(),
        };
        lease.check_at = lease.next_check(&ctx.now);
        lease
    }

    fn task_limit(&self) -> usize {
        self.count.clamp(1, MAX_CLAIMED_TASKS)
    }

    /// Returns the filter for the tasks that an agent may claim; without an agent, for one without capabilities.
    fn queue_filter<'a>(&'a self, workflow: Option<&'a Workflow>, agent: Option<&'a Agent>) -> Filter<'a> {
        let capabilities = Some(agent.map_or(&[][..], |agent| agent.capabilities.as_slice()));
        let mine = agent.filter(|agent| agent.assigned).map(|agent| agent.name.as_str());
        Filter { scope: &self.scope, workflow, labels: &self.labels, without: &self.without, capabilities, mine }
    }
}

/// Lists why an agent cannot claim a task.
fn reasons_against(
    ctx: &mut VerbContext<'_>,
    agent: &Agent,
    task: &Task,
    workflow: &Workflow,
) -> VerbResult<Vec<Reason>> {
    let dependencies = ctx.tx.dependencies(&task.id)?;
    let gates = ctx.tx.gates(&task.id)?;
    let mut reasons = ready::reasons(task, workflow, &dependencies, &gates, ctx.now.wall);
    let tags = task.lacking(&agent.capabilities);
    if !tags.is_empty() {
        reasons.push(Reason::MissingCapability { tags });
    }
    if let Some(to) = task.spec.assigned_to.clone().filter(|to| *to != agent.name)
        && assign::is_awaited(ctx, &to)?
    {
        reasons.push(Reason::Assigned { to });
    }
    if task.reviews_work_of(&agent.name) {
        reasons.push(Reason::OwnWork);
    }
    Ok(reasons)
}

/// Tells why no task of an issue's workflow could be claimed: somebody holds one, or it waits.
fn refuse_started_issue(ctx: &mut VerbContext<'_>, issue: &str, workflow: &Workflow) -> VerbResult<VerbError> {
    if let Some(lease) = ctx.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?.first() {
        return ctx.held(lease);
    }
    let why = WhyStarted { issue: issue.to_owned() }.run(ctx)?;
    let reason = why.unwrap_or_else(|| IssueReason::Running { workflow: workflow.id.to_string() });
    Ok(Refusal::IssueNotReady { issue: issue.to_owned(), reasons: vec![reason] }.into())
}

/// Returns whether an agent may end a live lease of its own: no process holds it, or that process is dead.
fn may_take_over(ctx: &VerbContext<'_>, agent: &Agent, lease: &Lease) -> bool {
    lease.agent == agent.id && (lease.holder.is_none() || lease.is_abandoned(ctx.processes))
}

/// Ends the lease of another session of the same agent; its fence becomes stale.
fn hand_over_lease(ctx: &mut VerbContext<'_>, lease: &Lease) -> VerbResult<()> {
    let reason = Some("taken over by another session".to_owned());
    let mut writes = end_lease(ctx, lease, AttemptResult::Handoff, reason, None)?;
    let Some(mut task) = ctx.tx.task(&lease.task)? else { return Ok(()) };
    task.state.status = TaskStatus::Pending;
    writes.push(Write::TaskState(task.id.clone(), task.state.clone()));
    ctx.record(task.id.as_str(), "task.taken_over", json!({ "fence": lease.fence.number }), writes)?;
    let mut workflow = ctx.require_workflow(&task.workflow)?;
    refresh_room(ctx, &mut workflow)?;
    place_in_queue(ctx, &task, &workflow)
}

fn new_attempt(ctx: &VerbContext<'_>, lease: &Lease) -> Attempt {
    Attempt {
        task: lease.task.clone(),
        fence: lease.fence.number,
        lease: lease.fence.id.clone(),
        agent: lease.agent.clone(),
        place: ctx.place.clone(),
        started: ctx.now.wall,
        ended: None,
        result: None,
        reason: None,
        cost: None,
        report: None,
    }
}

/// Reads what a new holder has to know: the newest checkpoint, answered questions, and why the work was sent back.
fn what_earlier_holders_left(
    ctx: &mut VerbContext<'_>,
    task: &Task,
) -> VerbResult<(Option<Checkpoint>, Vec<Gate>, Option<Bounce>)> {
    if task.state.fence == 0 {
        return Ok((None, Vec::new(), None));
    }
    let landing = ctx.tx.landing(&Landing::id_of(&task.id))?;
    let sent_back = landing.and_then(|landing| landing.bounce().cloned());
    Ok((ctx.tx.checkpoints(&task.id, 1)?.pop(), answered_gates(ctx, task)?, sent_back))
}

fn answered_gates(ctx: &mut VerbContext<'_>, task: &Task) -> VerbResult<Vec<Gate>> {
    Ok(ctx.tx.gates(&task.id)?.into_iter().filter(|gate| gate.opened.is_some()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{testing::Stage, verbs::finish};

    fn claim_by_id(stage: &Stage, agent: &str, id: &str) -> VerbResult<Claimed> {
        stage.claim_with(agent, Request { id: Some(id.into()), scope: stage.scope(), ..Default::default() })
    }

    fn refusal(outcome: VerbResult<Claimed>) -> Refusal {
        match outcome {
            Err(VerbError::Refused(refusal)) => refusal,
            other => panic!("it was not refused: {other:?}"),
        }
    }

    #[test]
    fn second_claim_of_a_task_names_its_holder() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        let claimed = stage.claim("ann").unwrap();
        let refused = refusal(claim_by_id(&stage, "bob", claimed.task.id.as_str()));
        assert!(matches!(refused, Refusal::LeaseHeld { agent, .. } if agent == "ann"));
    }

    #[test]
    fn blocked_task_is_refused_with_its_reason() {
        let stage = Stage::memory();
        let flow = stage.flow("Ship", &["build", "test<-build"]);
        let blocked = flow.tasks.iter().find(|task| task.spec.name == "test").unwrap();
        let Refusal::NotReady { reasons, .. } = refusal(claim_by_id(&stage, "ann", blocked.id.as_str())) else {
            panic!("it was refused for something else");
        };
        assert!(matches!(reasons.as_slice(), [Reason::Blocked { .. }]), "{reasons:?}");
    }

    #[test]
    fn claim_after_a_release_has_a_higher_fence() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        let first = stage.claim("ann").unwrap();
        stage.finish("ann", finish::Request::default()).unwrap();
        let second = stage.claim("bob").unwrap();
        assert_eq!((first.lease.fence, second.lease.fence), (1, 2));
    }

    #[test]
    fn lease_without_time_to_live_is_refused() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        let request = Request { ttl: Some(Duration::ZERO), scope: stage.scope(), ..Default::default() };
        assert!(matches!(refusal(stage.claim_with("ann", request)), Refusal::Invalid { field, .. } if field == "ttl"));
    }
}
