//! What a store keeps about issues: who works on which, and what its ledger still has to be told.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, Work, find, flow, template};
use crate::{
    change::Write,
    flow::{Outcome as TaskOutcome, Plan, PlanTask, Source, Task, TaskStatus, Workflow, WorkflowStatus},
    issue::{Issue, NO_AUTO_CLAIM, ready::Reason},
    lease::Standing,
    refusal::{Refusal, Verdict},
    store::{Access, LeasesOf, TaskQuery},
};

/// How many ended workflows one look takes in.
const AT_ONCE: usize = 100;

/// An issue that could be started, as the plan has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The issue.
    #[serde(flatten)]
    pub issue: Issue,
    /// The ledger it is in.
    pub ledger: String,
    /// Its place in the order of ready work.
    #[serde(skip)]
    pub rank: String,
    /// Why it cannot start now; empty if it can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
}

impl Offer {
    /// Is it shown to somebody who asks what is ready? What is not to be taken unasked is, unless they would take it.
    pub(super) fn listed(&self, labels: &[String], to_take: bool) -> bool {
        let has = |label: &str| self.issue.labels.iter().any(|known| known == label);
        self.reasons.is_empty() && labels.iter().all(|label| has(label)) && !(to_take && has(NO_AUTO_CLAIM))
    }

    /// How it is done: by its template, else in a single task.
    pub(super) fn plan(&self, work: &mut Work<'_>) -> Verdict<(Plan, Option<String>)> {
        let mut reasons = self.reasons.clone();
        // A ledger that was not told yet how the last one ended does not know what it says.
        let ended = work.tx.untold(AT_ONCE)?.into_iter().find(|ended| ended.issue() == Some(&self.issue.id));
        reasons.extend(ended.map(|ended| Reason::Running { workflow: ended.id.to_string() }));
        if !reasons.is_empty() {
            return Err(Refusal::IssueNotReady { issue: self.issue.id.clone(), reasons }.into());
        }
        let Issue { title, body, priority, labels, template, .. } = &self.issue;
        let mut plan = match template {
            Some(name) => template::load(work, name)?.fill(&std::collections::BTreeMap::new())?,
            None => {
                let (name, brief, labels) = (title.clone(), body.clone().unwrap_or_default(), labels.clone());
                Plan { tasks: vec![PlanTask { name, brief, labels, ..PlanTask::default() }], ..Plan::default() }
            }
        };
        plan.title.clone_from(title);
        plan.priority = plan.priority.or(Some((*priority).min(4)));
        Ok((plan, template.clone()))
    }

    /// Starts a workflow for it.
    pub(super) fn start(
        &self,
        work: &mut Work<'_>,
        plan: &Plan,
        template: Option<String>,
    ) -> Verdict<(Workflow, Vec<Task>)> {
        let source = Source::Issue { id: self.issue.id.clone(), ledger: self.ledger.clone() };
        let made = flow::make(work, plan, source, template, false)?;
        Ok((made.workflow, made.tasks))
    }
}

/// Something was written in a ledger: history says so.
#[derive(Clone, Debug)]
pub struct Note {
    /// What was done.
    pub what: &'static str,
    /// To which issues.
    pub notes: Vec<Noted>,
}

/// One issue something was written about.
#[derive(Clone, Debug)]
pub struct Noted {
    /// The issue.
    pub issue: String,
    /// In which ledger, and what.
    pub detail: Value,
}

impl Verb for Note {
    type Outcome = ();
    const NAME: &'static str = "issue.note";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut Work<'_>) -> Verdict<()> {
        work.me()?;
        for Noted { issue, detail } in self.notes {
            work.did(&issue, self.what, detail, Vec::new())?;
        }
        Ok(())
    }
}

/// Which workflow is on an issue, if any.
#[derive(Clone, Debug)]
pub struct OnIt {
    /// The issue.
    pub issue: String,
}

/// The workflow that is on an issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct On {
    /// The workflow.
    pub workflow: Workflow,
    /// Who holds a task of it now.
    pub holder: Option<String>,
}

impl Verb for OnIt {
    type Outcome = Option<On>;
    const NAME: &'static str = "issue.on_it";
    const ACCESS: Access = Access::Read;

    fn run(self, work: &mut Work<'_>) -> Verdict<Option<On>> {
        let Some(workflow) = work.tx.workflow_of_issue(&self.issue)? else { return Ok(None) };
        let leases = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?;
        let live = leases.iter().find(|lease| lease.standing(&work.now, work.processes) == Standing::Live);
        let holder = live.map(|lease| work.agent_name(&lease.agent)).transpose()?;
        Ok(Some(On { workflow, holder }))
    }
}

/// Workflows that are over and whose issue's ledger does not say so yet.
#[derive(Clone, Debug)]
pub struct Untold;

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The workflow.
    pub workflow: Workflow,
    /// How its last task ended.
    pub outcome: Option<TaskOutcome>,
}

impl Verb for Untold {
    type Outcome = Vec<Ended>;
    const NAME: &'static str = "issue.untold";
    const ACCESS: Access = Access::Read;

    fn run(self, work: &mut Work<'_>) -> Verdict<Vec<Ended>> {
        let mut ended = Vec::new();
        for workflow in work.tx.untold(AT_ONCE)? {
            let last = if workflow.status == WorkflowStatus::Failed { TaskStatus::Failed } else { TaskStatus::Done };
            let done = TaskQuery { workflow: Some(workflow.id.clone()), statuses: vec![last], ..TaskQuery::default() };
            let last = work.tx.tasks(&done)?.into_iter().max_by_key(|task| task.state.updated);
            ended.push(Ended { workflow, outcome: last.and_then(|task| task.state.outcome) });
        }
        Ok(ended)
    }
}

/// The ledger says how a workflow ended.
#[derive(Clone, Debug)]
pub struct Told {
    /// The workflow.
    pub workflow: String,
}

impl Verb for Told {
    type Outcome = ();
    const NAME: &'static str = "issue.told";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut Work<'_>) -> Verdict<()> {
        let mut workflow = find::workflow(work, &self.workflow)?;
        if workflow.told || workflow.issue().is_none() {
            return Ok(());
        }
        workflow.told = true;
        let closed = workflow.status == WorkflowStatus::Completed;
        let what = if closed { "issue.closed" } else { "issue.reopened" };
        let detail = serde_json::json!({ "workflow": workflow.id, "reason": workflow.reason });
        let issue = workflow.issue().unwrap_or_default().to_owned();
        work.by_itself(&issue, what, detail, vec![Write::Workflow(workflow)])
    }
}
