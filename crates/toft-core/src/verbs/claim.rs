//! Claim: take ready work under a lease. One winner, decided in one transaction.

use std::{collections::BTreeSet, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, assign, find, flow, issue::Offer, sweep};
use crate::{
    agent::{Agent, AgentState},
    change::Write,
    checkpoint::Checkpoint,
    flow::{
        Attempt, AttemptResult, Task, TaskStatus, Workflow, end_lease, ledger_changed, place_in_queue, refresh_room,
    },
    gate::Gate,
    id::{LeaseId, WorkflowId},
    issue,
    landing::{Bounce, Landing},
    lease::{Fence, Holder, Lease, LeaseStatus},
    queue::{Filter, Queue},
    ready::{self, Reason},
    refusal::{Refusal, Unstartable, VerbError, VerbResult},
    repository::Scope,
    store::{Access, LeasesOf, Prefetch, QueueKey},
    time::Timestamp,
};

/// The highest number of tasks that one claim takes.
const MOST_AT_ONCE: usize = 100;

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
    const ENDS: bool = true;

    fn prefetch<'a>(&'a self, actor: &'a str) -> Prefetch<'a> {
        let key = match &self.id {
            None => self.filter(None, None).only_key(),
            Some(text)
                if text.starts_with(WorkflowId::PREFIX) && self.labels.is_empty() && self.scope.worktree.is_none() =>
            {
                Some(QueueKey::Workflow(WorkflowId::known(text)))
            }
            Some(text) => return Prefetch::Hold { task: text },
        };
        let head = key.map(|key| (key, self.wanted()));
        Prefetch::Claim { actor, scope: &self.scope, head, leases: sweep::AT_ONCE, timers: ready::DUE_AT_ONCE }
    }

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        if self.ttl == Some(Duration::ZERO) {
            return Err(
                Refusal::Invalid { field: "ttl".into(), problem: "a lease needs some time to live".into() }.into()
            );
        }
        let me = work.me()?;
        if me.state != AgentState::Active {
            let state = if me.state == AgentState::Draining { "paused" } else { "removed" };
            return Err(Refusal::AgentPaused { agent: me.name, state: state.into(), note: me.note }.into());
        }
        let mut missed = Missed::default();
        let claims = match self.id.as_deref() {
            Some(text) if text.starts_with(WorkflowId::PREFIX) => {
                let workflow = find::workflow(work, text)?;
                self.best(work, &me, Some(&workflow), &mut missed)?
            }
            Some(text) if let Some(offer) = self.offers.iter().find(|offer| offer.issue.id == text) => {
                self.issue(work, &me, offer, &mut missed)?
            }
            Some(text) => vec![self.named(work, &me, text)?],
            None => self.best(work, &me, None, &mut missed)?,
        };
        if claims.is_empty() {
            let next = ready::next_timer(work.tx, &self.scope)?;
            let lacking = missed.lacking.into_iter().collect();
            return Err(Refusal::NothingReady {
                next,
                lacking,
                examined: missed.examined,
                unstartable: missed.unstartable,
            }
            .into());
        }
        Ok(Outcome { claims })
    }
}

/// Why a search found nothing.
#[derive(Default)]
struct Missed {
    /// Capabilities that the agent lacks.
    lacking: BTreeSet<String>,
    /// Number of examined entries, if the search was cut short.
    examined: Option<usize>,
    /// The first issue that cannot be started.
    unstartable: Option<Unstartable>,
}

impl Request {
    /// Claims an issue: the best task of its workflow, or the first task of a new workflow.
    fn issue(
        &self,
        work: &mut VerbContext<'_>,
        me: &Agent,
        offer: &Offer,
        missed: &mut Missed,
    ) -> VerbResult<Vec<Claimed>> {
        if let Some(live) = work.tx.workflow_of_issue(&offer.issue.id)? {
            let claims = self.best(work, me, Some(&live), missed)?;
            if claims.is_empty() {
                if let Some(lease) = work.tx.leases(&LeasesOf::Workflow(live.id.clone()))?.first() {
                    return Err(work.held(lease)?);
                }
                let issue = offer.issue.id.clone();
                let running = issue::ready::IssueReason::Running { workflow: live.id.to_string() };
                let why = super::issue::WhyStarted { issue: issue.clone() }.run(work)?.unwrap_or(running);
                return Err(Refusal::IssueNotReady { issue, reasons: vec![why] }.into());
            }
            return Ok(claims);
        }
        if let Some(to) = offer.kept_for(work, &me.name)? {
            let reasons = vec![issue::ready::IssueReason::Assigned { to }];
            return Err(Refusal::IssueNotReady { issue: offer.issue.id.clone(), reasons }.into());
        }
        let built = offer.build(work)?;
        Ok(self.start(work, me, built)?.into_iter().collect())
    }

    /// Starts the workflow of an issue and claims the first of its tasks that can start.
    fn start(&self, work: &mut VerbContext<'_>, me: &Agent, built: flow::Buildable) -> VerbResult<Option<Claimed>> {
        let startable = |task: &Task| task.state.open_blockers == 0 && task.lacking(&me.capabilities).is_empty();
        if !built.tasks().iter().any(startable) {
            return Ok(None);
        }
        let made = built.make(work)?;
        let first = made.tasks.into_iter().find(startable);
        first.map(|task| self.take(work, me, task, made.workflow)).transpose()
    }

    fn named(&self, work: &mut VerbContext<'_>, me: &Agent, text: &str) -> VerbResult<Claimed> {
        let mut task = find::task(work, text)?;
        if let Some(lease) = work.tx.lease(&task.id)? {
            // The watch itself is begun by the sweep that follows a refusal.
            work.swept += usize::from(lease.due(&work.now) && lease.begins_watch(&work.now));
            match lease.standing(&work.now, work.processes) {
                LeaseStatus::Live if self.take_over && self.abandoned(work, me, &lease) => hand_over(work, &lease)?,
                LeaseStatus::Live if lease.agent == me.id && !self.is_holder(work, &lease) => {
                    return Err(Refusal::OtherSession { task: task.id, agent: me.name.clone() }.into());
                }
                LeaseStatus::Live => return Err(work.held(&lease)?),
                LeaseStatus::Lost(why) => {
                    work.swept += 1;
                    sweep::take_back(work, &lease, why)?;
                }
            }
            task = find::task(work, task.id.as_str())?;
        }
        let workflow = work.require_workflow(&task.workflow)?;
        let dependencies = work.tx.dependencies(&task.id)?;
        let gates = work.tx.gates(&task.id)?;
        let mut reasons = ready::reasons(&task, &workflow, &dependencies, &gates, work.now.wall);
        let tags = task.lacking(&me.capabilities);
        if !tags.is_empty() {
            reasons.push(Reason::MissingCapability { tags });
        }
        if let Some(to) = task.spec.assigned_to.clone().filter(|to| *to != me.name)
            && assign::is_awaited(work, &to)?
        {
            reasons.push(Reason::Assigned { to });
        }
        if task.reviews_work_of(&me.name) {
            reasons.push(Reason::OwnWork);
        }
        if !reasons.is_empty() {
            return Err(Refusal::NotReady { task: task.id, reasons }.into());
        }
        self.take(work, me, task, workflow)
    }

    /// Whether this session holds it: it can prove that with the fence, or it is the process that the lease follows.
    fn is_holder(&self, work: &VerbContext<'_>, lease: &Lease) -> bool {
        work.holds.contains(&lease.fence) || lease.holder.is_some() && lease.holder == self.holder
    }

    /// Whether the agent may take over its own lease: no process holds it, or that process is dead.
    fn abandoned(&self, work: &VerbContext<'_>, me: &Agent, lease: &Lease) -> bool {
        lease.agent == me.id && (lease.holder.is_none() || lease.is_abandoned(work.processes))
    }

    /// The best ready tasks. Overdue leases are ended first; if nothing is ready then, every process is checked.
    fn best(
        &self,
        work: &mut VerbContext<'_>,
        me: &Agent,
        only: Option<&Workflow>,
        missed: &mut Missed,
    ) -> VerbResult<Vec<Claimed>> {
        sweep::sweep(work, false)?;
        self.promote_due(work)?;
        let claims = self.take_best(work, me, only, missed)?;
        if claims.is_empty() && sweep::sweep(work, true)? + assign::free_stranded(work, &self.scope)? > 0 {
            return self.take_best(work, me, only, missed);
        }
        Ok(claims)
    }

    /// Moves tasks whose timer has expired into the ready queue.
    fn promote_due(&self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        for task in ready::due(work.tx, &self.scope, work.now.wall)? {
            let workflow = work.require_workflow(&task.workflow)?;
            place_in_queue(work, &task, &workflow)?;
        }
        Ok(())
    }

    fn wanted(&self) -> usize {
        self.count.clamp(1, MOST_AT_ONCE)
    }

    /// The filter for the tasks that an agent may claim.
    fn filter<'a>(&'a self, workflow: Option<&'a Workflow>, me: Option<&'a Agent>) -> Filter<'a> {
        let capabilities = Some(me.map_or(&[][..], |me| me.capabilities.as_slice()));
        let mine = me.filter(|me| me.assigned).map(|me| me.name.as_str());
        Filter { scope: &self.scope, workflow, labels: &self.labels, without: &self.without, capabilities, mine }
    }

    fn take_best(
        &self,
        work: &mut VerbContext<'_>,
        me: &Agent,
        only: Option<&Workflow>,
        missed: &mut Missed,
    ) -> VerbResult<Vec<Claimed>> {
        let mut queue = Queue::take(work.tx, self.filter(only, Some(me)), self.wanted())?;
        let mut claims = Vec::new();
        let mut offers = self
            .offers
            .iter()
            .filter(|offer| only.is_none() && offer.listed(&self.labels, &self.without, true))
            .peekable();
        let mut head = None;
        while claims.len() < self.wanted() {
            if head.is_none() {
                head = queue.next(work.tx)?;
            }
            if let Some(offer) = offers.next_if(|offer| head.as_ref().is_none_or(|(rank, _)| offer.rank < *rank)) {
                if work.tx.workflow_of_issue(&offer.issue.id)?.is_none() && offer.kept_for(work, &me.name)?.is_none() {
                    // An issue that cannot be started, for its template or its title, keeps nobody from the others.
                    match offer.build(work) {
                        Ok(built) => claims.extend(self.start(work, me, built)?),
                        Err(VerbError::Refused(refusal)) => {
                            let found = Unstartable { issue: offer.issue.id.clone(), why: refusal.to_string() };
                            missed.unstartable = missed.unstartable.take().or(Some(found));
                        }
                        Err(failed) => return Err(failed),
                    }
                }
                continue;
            }
            let Some((_, task)) = head.take() else { break };
            if task.reviews_work_of(&me.name) {
                continue;
            }
            let workflow = work.require_workflow(&task.workflow)?;
            if workflow.has_room() {
                claims.push(self.take(work, me, task, workflow)?);
            } else {
                queue.leave_out(&workflow);
            }
        }
        if claims.is_empty() {
            missed.lacking.extend(queue.lacking(work.tx)?);
            missed.examined = queue.cut_after();
        }
        Ok(claims)
    }

    fn take(
        &self,
        work: &mut VerbContext<'_>,
        me: &Agent,
        mut task: Task,
        mut workflow: Workflow,
    ) -> VerbResult<Claimed> {
        let (resume, answers) = match task.state.fence {
            0 => (None, Vec::new()),
            _ => (work.tx.checkpoints(&task.id, 1)?.pop(), answered(work, &task)?),
        };
        task.state.status = TaskStatus::Leased;
        task.state.fence += 1;
        task.state.not_before = None;
        task.state.updated = work.now.wall;
        let fence = Fence { number: task.state.fence, id: LeaseId::generate(work.ids) };
        let ttl = self.ttl.unwrap_or(work.policy.ttl);
        let mut lease = Lease {
            task: task.id.clone(),
            workflow: task.workflow.clone(),
            repository: task.place.repository.clone(),
            agent: me.id.clone(),
            fence: fence.clone(),
            acquired: work.now.wall,
            ttl,
            cap: self.cap.unwrap_or(work.policy.cap).max(ttl),
            renewed: work.now.wall,
            renewed_tick: work.now.tick.clone(),
            seen: Vec::new(),
            check_at: 0,
            holder: self.holder.clone(),
        };
        lease.check_at = lease.next_check(&work.now);
        let attempt = Attempt {
            task: task.id.clone(),
            fence: fence.number,
            lease: fence.id.clone(),
            agent: me.id.clone(),
            place: work.place.clone(),
            started: work.now.wall,
            ended: None,
            result: None,
            reason: None,
            cost: None,
            report: None,
        };
        let hold = Hold { fence: fence.number, id: fence.id.clone(), token: fence.clone(), expires: lease.expires() };
        work.record(
            task.id.as_str(),
            "claim",
            json!({ "fence": fence.number }),
            vec![
                Write::TaskState(task.id.clone(), task.state.clone()),
                Write::DropQueue(task.id.clone()),
                Write::Lease(lease),
                Write::Attempt(attempt),
            ],
        )?;
        refresh_room(work, &mut workflow)?;
        ledger_changed(work, &mut workflow)?;
        let issue = workflow.issue().map(str::to_owned);
        // Only what was finished before can have been sent back.
        let landing = if task.state.fence > 1 { work.tx.landing(&Landing::id_of(&task.id))? } else { None };
        let sent_back = landing.and_then(|landing| landing.bounce().cloned());
        Ok(Claimed { task, lease: hold, workflow_title: workflow.title, issue, resume, answers, sent_back })
    }
}

/// Ends the lease of another session of the same agent; its fence becomes stale.
fn hand_over(work: &mut VerbContext<'_>, lease: &Lease) -> VerbResult<()> {
    let reason = Some("taken over by another session".to_owned());
    let mut writes = end_lease(work, lease, AttemptResult::Handoff, reason, None)?;
    let Some(mut task) = work.tx.task(&lease.task)? else { return Ok(()) };
    task.state.status = TaskStatus::Pending;
    writes.push(Write::TaskState(task.id.clone(), task.state.clone()));
    work.record(task.id.as_str(), "task.taken_over", json!({ "fence": lease.fence.number }), writes)?;
    let mut workflow = work.require_workflow(&task.workflow)?;
    refresh_room(work, &mut workflow)?;
    place_in_queue(work, &task, &workflow)
}

fn answered(work: &mut VerbContext<'_>, task: &Task) -> VerbResult<Vec<Gate>> {
    Ok(work.tx.gates(&task.id)?.into_iter().filter(|gate| gate.opened.is_some()).collect())
}
