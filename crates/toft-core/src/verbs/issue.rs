//! What a store keeps about issues: their active workflows, and pending updates of their ledgers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, VerbContext, assign, find, flow, ready, template};
use crate::{
    change::Write,
    events,
    flow::{IssueState, Outcome as TaskOutcome, PlanTask, Source, TaskStatus, Workflow, WorkflowPlan, WorkflowStatus},
    issue::{CLOSED, Issue, ready::IssueReason},
    landing::{Landing, LandingState},
    lease::LeaseStatus,
    may::May,
    ready::Reason,
    refusal::{Refusal, VerbError, VerbResult},
    repository::Scope,
    schema::JsonSchema,
    store::{Access, EventQuery, LeasesOf, TaskQuery},
    time::Timestamp,
    token::TokenRole,
};

/// Maximum number of ended workflows that one query reads.
const AT_ONCE: usize = 1_000;

/// An issue that could be started, from the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueOffer")]
pub struct Offer {
    #[serde(flatten)]
    pub issue: Issue,
    pub ledger: String,
    /// Its rank in the order of ready work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rank: String,
    /// When its ledger last recorded its status.
    #[serde(default, skip_serializing_if = "Timestamp::is_unset")]
    pub said_at: Timestamp,
    /// Why it cannot start now; empty if it can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<IssueReason>,
}

impl Offer {
    /// Whether it is in the list of ready issues. Issues that are claimed only by id are listed, except for a caller
    /// that claims.
    pub(super) fn listed(&self, labels: &[String], without: &[String], to_take: bool) -> bool {
        let has = |label: &String| self.issue.labels.contains(label);
        self.reasons.is_empty()
            && labels.iter().all(has)
            && !without.iter().any(has)
            && !(to_take && self.issue.only_by_name())
    }

    /// The other agent for which the issue is reserved, if any.
    pub(super) fn kept_for(&self, work: &mut VerbContext<'_>, name: &str) -> VerbResult<Option<String>> {
        match self.issue.assignee.as_ref().filter(|to| *to != name) {
            Some(to) if assign::is_awaited(work, to)? => Ok(Some(to.clone())),
            _ => Ok(None),
        }
    }

    /// Whether another clone has closed it since its ledger here last recorded its status.
    fn closed_since(&self, work: &mut VerbContext<'_>) -> VerbResult<bool> {
        const LOOKED_AT: usize = 20;
        let query =
            EventQuery { entity: Some(self.issue.id.clone()), newest: true, limit: LOOKED_AT, ..EventQuery::default() };
        let events = work.tx.events(&query)?;
        let last = events.iter().rev().find(|event| event.verb == "issue.closed" || event.verb == "issue.edited");
        Ok(last.is_some_and(|event| event.verb == "issue.closed" && event.at > self.said_at))
    }

    /// Whether a claim would start it: nothing that the store knows speaks against it, and its template is there.
    pub(super) fn can_start(&self, work: &mut VerbContext<'_>) -> VerbResult<bool> {
        match self.build(work) {
            Ok(_) => Ok(true),
            Err(VerbError::Refused(_)) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    /// The workflow for it: from its template, otherwise with a single task. Refuses everything that could not be
    /// created, and writes nothing.
    pub(super) fn build(&self, work: &mut VerbContext<'_>) -> VerbResult<flow::Buildable> {
        let mut reasons = self.reasons.clone();
        // A ledger that was not told yet how the last workflow ended does not know what it says.
        let here = work.place.repository.clone();
        let pending = work.tx.ledger_pending(here.as_ref(), AT_ONCE)?.into_iter();
        let ended = pending.filter(|workflow| workflow.issue_state() == Some(IssueState::Untold));
        let ended = ended.into_iter().find(|ended| ended.issue() == Some(&self.issue.id));
        reasons.extend(ended.map(|ended| IssueReason::Running { workflow: ended.id.to_string() }));
        if self.closed_since(work)? {
            reasons
                .push(IssueReason::Status { status: "closed, and this ledger does not say so yet (toft sync)".into() });
        }
        if !reasons.is_empty() {
            return Err(Refusal::IssueNotReady { issue: self.issue.id.clone(), reasons }.into());
        }
        let Issue { title, body, priority, labels, template, .. } = &self.issue;
        let mut plan = match template {
            Some(name) => template::load(work, name)?.fill(&std::collections::BTreeMap::new())?,
            None => {
                let (name, brief, labels) = (title.clone(), body.clone().unwrap_or_default(), labels.clone());
                WorkflowPlan {
                    tasks: vec![PlanTask { name, brief, labels, ..PlanTask::default() }],
                    ..WorkflowPlan::default()
                }
            }
        };
        plan.title.clone_from(title);
        plan.priority = plan.priority.or(Some((*priority).min(4)));
        let source = Source::Issue { id: self.issue.id.clone(), ledger: self.ledger.clone() };
        let built = flow::build(work, &plan, source, template.clone(), false)?;
        match built.tasks().is_empty() {
            true => {
                let problem = format!("template `{}` has no tasks", template.as_deref().unwrap_or_default());
                Err(Refusal::Invalid { field: "template".into(), problem }.into())
            }
            false => Ok(built),
        }
    }
}

/// Record a change to a ledger in the event log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueNote")]
pub struct Note {
    /// The name of the event.
    pub what: String,
    /// The changed issues.
    #[serde(default)]
    pub notes: Vec<Noted>,
    /// Epics that followed their parts by themselves.
    #[serde(default)]
    pub epics: Vec<Noted>,
}

/// A changed issue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NotedIssue")]
pub struct Noted {
    pub issue: String,
    /// The ledger and the change.
    pub detail: Value,
}

impl Verb for Note {
    type Outcome = ();
    const NAME: &'static str = "issue.note";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker)
        .or_agent(|request, _| matches!(request.what.as_str(), "issue.added" | "issue.edited"));

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        work.register_caller()?;
        if !events::known(&self.what) || !(self.what.starts_with("issue.") || self.what.starts_with("ledger.")) {
            let problem = format!("`{}` is not an event of a ledger", self.what);
            return Err(Refusal::Invalid { field: "what".into(), problem }.into());
        }
        for Noted { issue, detail } in self.notes {
            work.record(&issue, &self.what, detail, Vec::new())?;
        }
        record_epics(work, self.epics)
    }
}

/// Nobody asked for it, so undo passes over it: an epic follows again when its part is undone.
fn record_epics(work: &mut VerbContext<'_>, epics: Vec<Noted>) -> VerbResult<()> {
    for Noted { issue, detail } in epics {
        let what = if detail["status"] == CLOSED { "epic.closed" } else { "epic.reopened" };
        work.record_system(&issue, what, detail, Vec::new())?;
    }
    Ok(())
}

/// Which workflow is on an issue, if any.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueOnIt")]
pub struct OnIt {
    pub issue: String,
}

/// The active workflow of an issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueWork")]
pub struct On {
    pub workflow: Workflow,
    /// The agent that holds one of its tasks.
    pub holder: Option<String>,
}

impl Verb for OnIt {
    type Outcome = Option<On>;
    const NAME: &'static str = "issue.on_it";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Option<On>> {
        let Some(workflow) = work.tx.workflow_of_issue(&self.issue)? else { return Ok(None) };
        let leases = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?;
        let live = leases.iter().find(|lease| lease.standing(&work.now, work.processes) == LeaseStatus::Live);
        let holder = live.map(|lease| work.agent_name(&lease.agent)).transpose()?;
        Ok(Some(On { workflow, holder }))
    }
}

/// What keeps the work that was started on an issue from being claimed now; nothing if none was, or if a task can be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueWhyStarted")]
pub struct WhyStarted {
    pub issue: String,
}

impl Verb for WhyStarted {
    type Outcome = Option<IssueReason>;
    const NAME: &'static str = "issue.why_started";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Option<IssueReason>> {
        let Some(On { workflow, holder }) = (OnIt { issue: self.issue }).run(work)? else { return Ok(None) };
        let id = workflow.id.to_string();
        if holder.is_some() {
            return Ok(Some(IssueReason::Running { workflow: id }));
        }
        let tasks = TaskQuery { workflow: Some(workflow.id.clone()), ..TaskQuery::default() };
        let (mut waits_for, mut blocked) = (Vec::new(), Vec::new());
        for task in work.tx.tasks(&tasks)?.into_iter().filter(|task| task.state.status.open()) {
            let reasons = ready::why(work, &task)?;
            // Nobody holds it: what is leased was lost, and a claim takes it.
            let lost = task.state.status.held() && ready::free_task(work, &task.id)?.is_some();
            if lost || reasons.is_empty() {
                return Ok(None);
            }
            // What waits for another task of the workflow is explained by that one.
            let inner = reasons.iter().any(|reason| matches!(reason, Reason::Blocked { .. }));
            let list = if inner { &mut blocked } else { &mut waits_for };
            list.extend(reasons.iter().map(ToString::to_string));
        }
        if workflow.unlanded > 0 && waits_for.is_empty() && blocked.is_empty() {
            waits_for.push("its work is finished and has not landed (toft land)".to_owned());
        }
        let waits_for = if waits_for.is_empty() { blocked } else { waits_for };
        Ok((!waits_for.is_empty()).then_some(IssueReason::Started { workflow: id, waits_for }))
    }
}

/// Refuses to close an issue while an agent holds work on it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueCheckClosing")]
pub struct CheckClosing {
    pub issue: String,
}

impl Verb for CheckClosing {
    type Outcome = ();
    const NAME: &'static str = "issue.check_closing";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        let on = OnIt { issue: self.issue.clone() }.run(work)?;
        match on.and_then(|on| on.holder) {
            Some(holder) => {
                let wanted =
                    format!("its agent finishes it (toft finish), or is stopped first (toft stop {})", self.issue);
                Err(Refusal::WrongState { id: self.issue, state: format!("held by {holder}"), wanted }.into())
            }
            None => Ok(()),
        }
    }
}

/// Workflows whose state has to be written to the ledger of their issue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssuePending")]
pub struct Pending {
    #[serde(default)]
    pub scope: Scope,
}

/// The state of an issue's workflow that has to be written to its ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueNews")]
pub struct News {
    pub workflow: Workflow,
    /// The holder of one of its tasks; the first that claimed.
    pub holder: Option<String>,
    /// The outcome of its last task.
    pub outcome: Option<TaskOutcome>,
    /// The actor that ended it.
    pub ended_by: Option<String>,
    /// Everything is done, and has not landed yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
    /// Its work was done before, and was sent back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bounced: bool,
}

impl Verb for Pending {
    type Outcome = Vec<News>;
    const NAME: &'static str = "issue.pending";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer).or_agent(|_, _| true);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<News>> {
        let mut news = Vec::new();
        for workflow in work.tx.ledger_pending(self.scope.repository.as_ref(), AT_ONCE)? {
            news.push(news_of(work, workflow)?);
        }
        Ok(news)
    }
}

fn news_of(work: &mut VerbContext<'_>, workflow: Workflow) -> VerbResult<News> {
    let leases = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?;
    let first = leases.into_iter().min_by_key(|lease| lease.acquired);
    let holder = first.map(|lease| work.agent_name(&lease.agent)).transpose()?;
    let last = match workflow.status {
        WorkflowStatus::Completed => TaskStatus::Done,
        WorkflowStatus::Failed => TaskStatus::Failed,
        _ => return unfinished_news(work, workflow, holder),
    };
    let done = TaskQuery { workflow: Some(workflow.id.clone()), statuses: vec![last], ..TaskQuery::default() };
    let last = work.tx.tasks(&done)?.into_iter().max_by_key(|task| task.state.updated);
    let attempt = match &last {
        Some(task) => work.tx.attempts(&task.id)?.pop(),
        None => None,
    };
    let last_holder = attempt.map(|attempt| work.agent_name(&attempt.agent)).transpose()?;
    let ended_by = workflow.ended_by.clone().or(last_holder);
    let outcome = last.and_then(|task| task.state.outcome);
    Ok(News { workflow, holder, outcome, ended_by, finished: false, bounced: false })
}

fn unfinished_news(work: &mut VerbContext<'_>, workflow: Workflow, holder: Option<String>) -> VerbResult<News> {
    let tasks = work.tx.tasks(&TaskQuery { workflow: Some(workflow.id.clone()), ..TaskQuery::default() })?;
    let finished = workflow.unlanded > 0 && !tasks.iter().any(|task| task.state.status.open());
    let mut bounced = false;
    for task in tasks.iter().filter(|task| task.state.status.open() && task.state.fence > 0) {
        let landing = work.tx.landing(&Landing::id_of(&task.id))?;
        bounced |= landing.is_some_and(|landing| landing.state == LandingState::Bounced);
    }
    let last = tasks.iter().filter(|_| finished).max_by_key(|task| task.state.updated);
    let finisher = match last {
        Some(task) => work.tx.attempts(&task.id)?.pop(),
        None => None,
    };
    let ended_by = finisher.map(|attempt| work.agent_name(&attempt.agent)).transpose()?;
    Ok(News { workflow, holder, outcome: None, ended_by, finished, bounced })
}

/// Record that a ledger was updated with the state of an issue's workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueTold")]
pub struct Told {
    /// The state that was written.
    pub news: News,
    /// The recorded change; absent if the ledger already had that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<Noted>,
    /// Epics that followed their parts by themselves.
    pub epics: Vec<Noted>,
}

impl Verb for Told {
    type Outcome = ();
    const NAME: &'static str = "issue.told";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        let workflow = find::workflow(work, self.news.workflow.id.as_str())?;
        let same = !workflow.ledger_updated && news_of(work, workflow.clone())? == self.news;
        let detail = |workflow: &Workflow| {
            let noted = self.noted.as_ref().map(|noted| noted.detail.clone()).filter(Value::is_object);
            let mut detail = noted.unwrap_or_else(|| serde_json::json!({}));
            detail["workflow"] = workflow.id.as_str().into();
            detail["reason"] = self.news.workflow.reason.clone().into();
            detail
        };
        let what = match self.news.workflow.status {
            WorkflowStatus::Completed => "issue.closed",
            WorkflowStatus::Failed | WorkflowStatus::Abandoned => "issue.reopened",
            _ if self.news.finished => "issue.finished",
            _ if self.news.holder.is_some() => "issue.started",
            _ if self.news.bounced => "issue.reopened",
            _ => "issue.released",
        };
        record_epics(work, self.epics.clone())?;
        let issue = workflow.issue().unwrap_or_default().to_owned();
        match same {
            true => {
                let detail = detail(&workflow);
                work.record_system(
                    &issue,
                    what,
                    detail,
                    vec![Write::Workflow(Workflow { ledger_updated: true, ..workflow })],
                )
            }
            // It changed meanwhile: the ledger is told again.
            false if self.noted.is_some() => work.record_system(&issue, what, detail(&workflow), Vec::new()),
            false => Ok(()),
        }
    }
}
