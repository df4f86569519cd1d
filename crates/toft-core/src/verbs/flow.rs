//! Flow: create, start, pause, resume and abandon workflows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find, land, replan, send};
use crate::flow::ReviewedWork;
use crate::{
    change::Write,
    flow::{
        AttemptResult, Source, Task, TaskStatus, Workflow, WorkflowPlan, WorkflowStatus, check_names, conclude,
        end_lease, propagate, refresh_room, requeue, skip_pointless,
    },
    id::WorkflowId,
    issue::ready::IssueReason,
    may::May,
    message::{Address, MessageKind},
    refusal::{Refusal, VerbResult},
    repository::Scope,
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, LeasesOf, TaskQuery, WorkflowQuery},
    token::TokenRole,
};

/// Create a workflow from a plan.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowNew")]
pub struct New {
    pub plan: WorkflowPlan,
    /// Its origin.
    pub source: Source,
    /// Do not start it yet.
    #[serde(default)]
    pub hold: bool,
}

/// Create a workflow from a template.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowFrom")]
pub struct From {
    /// `name`, or `name@version`.
    pub template: String,
    /// Values for its variables.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Do not start it yet.
    #[serde(default)]
    pub hold: bool,
}

/// A workflow with its tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowOutcome")]
pub struct Outcome {
    pub workflow: Workflow,
    /// Its tasks, in plan order.
    pub tasks: Vec<Task>,
}

impl Verb for New {
    type Outcome = Outcome;
    const NAME: &'static str = "flow.new";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        build(work, &self.plan, self.source, None, self.hold)?.make(work)
    }
}

impl Verb for From {
    type Outcome = Outcome;
    const NAME: &'static str = "flow.from";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let template = super::template::load(work, &self.template)?;
        let name = format!("{}@{}", template.name, template.version);
        let plan = template.fill(&self.values)?;
        build(work, &plan, Source::Template { name: name.clone() }, Some(name), self.hold)?.make(work)
    }
}

/// A workflow that was checked completely; nothing is written yet.
pub(super) struct Buildable {
    workflow: Workflow,
    additions: replan::Additions,
}

/// Checks a plan and turns it into a workflow with tasks. All refusals come from this function, so that
/// [`Buildable::make`] only writes.
pub(super) fn build(
    work: &mut VerbContext<'_>,
    plan: &WorkflowPlan,
    source: Source,
    template: Option<String>,
    hold: bool,
) -> VerbResult<Buildable> {
    let invalid = |field: &str, problem: &str| Refusal::Invalid { field: field.into(), problem: problem.into() };
    if plan.title.trim().is_empty() {
        return Err(invalid("title", "a workflow needs a title").into());
    }
    if plan.priority.is_some_and(|priority| priority > 4) {
        return Err(invalid("priority", "priorities go from 0 to 4").into());
    }
    check_limits(plan.max_parallel, plan.budget)?;
    check_names(&plan.tasks)?;
    if let Source::Issue { id, .. } = &source
        && let Some(live) = work.tx.workflow_of_issue(id)?
    {
        let reasons = vec![IssueReason::Running { workflow: live.id.to_string() }];
        return Err(Refusal::IssueNotReady { issue: id.clone(), reasons }.into());
    }
    let status = match (plan.tasks.is_empty(), hold) {
        (true, _) => WorkflowStatus::Planning,
        (false, true) => WorkflowStatus::Ready,
        (false, false) => WorkflowStatus::Running,
    };
    let workflow = Workflow {
        id: WorkflowId::generate(work.ids),
        title: plan.title.clone(),
        source,
        status,
        reason: None,
        priority: plan.priority.unwrap_or(2),
        plan_summary: plan.summary.clone(),
        max_parallel: plan.max_parallel,
        budget: plan.budget,
        spent: 0.0,
        full: false,
        template,
        config: plan.config.clone(),
        ended_by: None,
        ledger_updated: false,
        unlanded: 0,
        repositories: work.place.repository.clone().into_iter().collect(),
        tasks: 0,
        place: work.place.clone(),
        created: work.now.wall,
        updated: work.now.wall,
    };
    let additions = replan::build(work, &workflow, &plan.tasks, &[])?;
    Ok(Buildable { workflow, additions })
}

impl Buildable {
    /// The tasks it will have.
    pub(super) fn tasks(&self) -> &[Task] {
        self.additions.tasks()
    }

    /// The same, to review finished work, in any worktree.
    pub(super) fn reviewing(mut self, work: &ReviewedWork) -> Self {
        self.additions.review(work);
        self
    }

    /// Writes the workflow and its tasks.
    pub(super) fn make(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let Self { mut workflow, additions } = self;
        work.register_caller()?;
        work.record(
            workflow.id.as_str(),
            "flow.new",
            json!({ "title": workflow.title, "tasks": additions.tasks().len(), "status": workflow.status }),
            vec![Write::Workflow(workflow.clone())],
        )?;
        let tasks = additions.insert(work, &mut workflow)?;
        work.tx.write_derived(&[Write::Workflow(workflow.clone())])?;
        requeue(work, &workflow)?;
        let ids: Vec<_> = tasks.iter().map(|task| task.id.clone()).collect();
        skip_pointless(work, &ids)?;
        Ok(Outcome { workflow, tasks })
    }
}

/// Restores a workflow that was abandoned before it was worked on. Refused if its issue has another workflow since.
pub(super) fn restore(work: &mut VerbContext<'_>, id: &str, status: WorkflowStatus) -> VerbResult<()> {
    let mut workflow = find::workflow(work, id)?;
    let all = TaskQuery { workflow: Some(workflow.id.clone()), ..TaskQuery::default() };
    let tasks = work.tx.tasks(&all)?;
    let untouched = tasks.iter().all(|task| task.state.fence == 0);
    if workflow.status != WorkflowStatus::Abandoned || !untouched {
        let (id, state) = (workflow.id.to_string(), workflow.status.as_str().into());
        let wanted = "only one that was undone before anybody worked on it comes back".into();
        return Err(Refusal::WrongState { id, state, wanted }.into());
    }
    alone_on_its_issue(work, &workflow)?;
    workflow.status = status;
    workflow.ledger_updated = false;
    workflow.reason = None;
    workflow.updated = work.now.wall;
    let detail = json!({ "reason": "redone" });
    work.record(workflow.id.as_str(), "flow.restored", detail, vec![Write::Workflow(workflow.clone())])?;
    for mut task in tasks.into_iter().filter(|task| task.state.status == TaskStatus::Cancelled) {
        task.state.status = TaskStatus::Pending;
        task.state.updated = work.now.wall;
        work.tx.write_derived(&[Write::TaskState(task.id.clone(), task.state.clone())])?;
    }
    replan::recount_all(work, &workflow)?;
    requeue(work, &workflow)
}

/// Continues a workflow that had ended; its issue must not have another workflow since.
pub(super) fn revive(work: &mut VerbContext<'_>, workflow: &mut Workflow) -> VerbResult<()> {
    alone_on_its_issue(work, workflow)?;
    workflow.status = WorkflowStatus::Running;
    workflow.ended_by = None;
    workflow.ledger_updated = false;
    Ok(())
}

fn alone_on_its_issue(work: &mut VerbContext<'_>, workflow: &Workflow) -> VerbResult<()> {
    let Some(issue) = workflow.issue() else { return Ok(()) };
    match work.tx.workflow_of_issue(issue)?.filter(|live| live.id != workflow.id) {
        None => Ok(()),
        Some(live) => Err(Refusal::WrongState {
            id: workflow.id.to_string(),
            state: workflow.status.as_str().into(),
            wanted: format!("{issue} is worked on in {} now", live.id),
        }
        .into()),
    }
}

/// Change the status of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowMove")]
pub struct Move {
    /// The workflow, by id or prefix.
    pub id: String,
    /// The step.
    pub to: Step,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A step that changes the status of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowStep")]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Offer no new tasks; held tasks continue.
    Pause,
    /// Make its tasks available: those of a new one that was held back, or again.
    Resume,
    /// Abandon it: leases are revoked, open tasks cancelled.
    Abandon,
}

impl Step {
    fn target(self) -> (WorkflowStatus, &'static str) {
        match self {
            Self::Pause => (WorkflowStatus::Paused, "flow.paused"),
            Self::Resume => (WorkflowStatus::Running, "flow.resumed"),
            Self::Abandon => (WorkflowStatus::Abandoned, "flow.abandoned"),
        }
    }
}

impl Verb for Move {
    type Outcome = Workflow;
    const NAME: &'static str = "flow.move";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workflow> {
        if self.to == Step::Abandon {
            rights::require(work, Action::Abandon)?;
        }
        self.apply(work)
    }
}

impl Move {
    /// Changes the status without a check of rights.
    pub(super) fn apply(self, work: &mut VerbContext<'_>) -> VerbResult<Workflow> {
        let mut workflow = find::workflow(work, &self.id)?;
        let (target, mut verb) = self.to.target();
        if workflow.status == target {
            return Ok(workflow);
        }
        if workflow.status == WorkflowStatus::Ready && self.to == Step::Resume {
            verb = "flow.started";
        }
        if !workflow.status.may_become(target) {
            return Err(Refusal::WrongState {
                id: workflow.id.to_string(),
                state: workflow.status.as_str().into(),
                wanted: match self.to {
                    Step::Pause => "only a running workflow can be paused".into(),
                    Step::Resume => "only a held, paused or failed workflow can be resumed, and only with tasks (toft flow edit --add)".into(),
                    Step::Abandon => "it is over".into(),
                },
            }
            .into());
        }
        work.register_caller()?;
        if target == WorkflowStatus::Running {
            revive(work, &mut workflow)?;
        }
        workflow.status = target;
        workflow.ledger_updated = false;
        workflow.reason.clone_from(&self.reason);
        workflow.updated = work.now.wall;
        work.record(
            workflow.id.as_str(),
            verb,
            json!({ "reason": self.reason }),
            vec![Write::Workflow(workflow.clone())],
        )?;
        if self.to == Step::Abandon {
            cancel_open(work, &workflow)?;
            land::withdraw_all(work, &workflow.id)?;
        }
        requeue(work, &workflow)?;
        conclude(work, &workflow.id)
    }
}

/// Change how many tasks of a workflow may run at once, or its budget.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowLimit")]
pub struct Limit {
    /// The workflow, by id or prefix.
    pub id: String,
    /// Maximum number of tasks held at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Maximum total cost of its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
}

impl Verb for Limit {
    type Outcome = Workflow;
    const NAME: &'static str = "flow.limit";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workflow> {
        rights::require(work, Action::Limit)?;
        let mut workflow = find::workflow(work, &self.id)?;
        check_limits(self.max_parallel, self.budget)?;
        work.register_caller()?;
        workflow.max_parallel = self.max_parallel.or(workflow.max_parallel);
        workflow.budget = self.budget.or(workflow.budget);
        workflow.updated = work.now.wall;
        work.record(
            workflow.id.as_str(),
            "flow.limited",
            json!({ "max_parallel": workflow.max_parallel, "budget": workflow.budget }),
            vec![Write::Workflow(workflow.clone())],
        )?;
        refresh_room(work, &mut workflow)?;
        requeue(work, &workflow)?;
        Ok(workflow)
    }
}

fn check_limits(max_parallel: Option<u32>, budget: Option<f64>) -> Result<(), Refusal> {
    let invalid = |field: &str, problem: &str| Refusal::Invalid { field: field.into(), problem: problem.into() };
    if max_parallel == Some(0) {
        return Err(invalid("max_parallel", "0 would let nothing run"));
    }
    if budget.is_some_and(|budget| !budget.is_finite() || budget <= 0.0) {
        return Err(invalid("budget", "a budget is a number above 0"));
    }
    Ok(())
}

fn cancel_open(work: &mut VerbContext<'_>, workflow: &Workflow) -> VerbResult<()> {
    for lease in work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))? {
        let writes = end_lease(work, &lease, AttemptResult::Revoked, Some("workflow abandoned".into()), None)?;
        let agent = work.agent_name(&lease.agent)?;
        work.record(
            lease.task.as_str(),
            "lease.revoked",
            json!({ "agent": agent, "fence": lease.fence.number }),
            writes,
        )?;
        let body =
            format!("Your hold on {} is over: {} \"{}\" was abandoned.", lease.task, workflow.id, workflow.title);
        let (to, inbox) = (Address::Agent(lease.agent.clone()), lease.agent.to_string());
        send::deliver(work, &to, MessageKind::Status, 0, &body, None, &[inbox])?;
    }
    let query = TaskQuery { workflow: Some(workflow.id.clone()), ..TaskQuery::default() };
    let mut cancelled = Vec::new();
    for mut task in work.tx.tasks(&query)? {
        let from = task.state.status;
        if from.open() {
            task.state.status = TaskStatus::Cancelled;
            task.state.updated = work.now.wall;
            let writes = vec![Write::TaskState(task.id.clone(), task.state.clone()), Write::DropQueue(task.id.clone())];
            work.record(task.id.as_str(), "task.cancelled", json!({ "workflow": workflow.id }), writes)?;
            cancelled.push((task, from));
        }
    }
    for (task, from) in cancelled {
        propagate(work, &task, from)?;
    }
    Ok(())
}

/// A workflow with its tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowShow")]
pub struct Show {
    /// The workflow, by id or prefix.
    pub id: String,
    /// Maximum number of tasks; all if 0.
    #[serde(default)]
    pub limit: usize,
}

/// A workflow with its tasks and the number of tasks per status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ShownFlow")]
pub struct Shown {
    pub workflow: Workflow,
    /// Number of tasks per status.
    pub progress: BTreeMap<String, u64>,
    /// Its tasks in plan order, each with the names of its dependencies.
    pub tasks: Vec<ShownTask>,
}

/// A task in the view of its workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowTask")]
pub struct ShownTask {
    #[serde(flatten)]
    pub task: Task,
    /// The name of its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The names of its dependencies.
    pub needs: Vec<String>,
}

impl Verb for Show {
    type Outcome = Shown;
    const NAME: &'static str = "flow.show";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Shown> {
        let workflow = find::workflow(work, &self.id)?;
        let progress = progress(work, &workflow.id)?;
        let query = TaskQuery { workflow: Some(workflow.id.clone()), limit: self.limit, ..TaskQuery::default() };
        let mut tasks = Vec::new();
        for task in work.tx.tasks(&query)? {
            let holder = match work.tx.lease(&task.id)? {
                Some(lease) => Some(work.agent_name(&lease.agent)?),
                None => None,
            };
            let mut needs = Vec::new();
            for (dependency, _) in work.tx.dependencies(&task.id)? {
                needs.push(work.tx.task(&dependency.on)?.map_or(dependency.on.to_string(), |task| task.spec.name));
            }
            tasks.push(ShownTask { task, holder, needs });
        }
        Ok(Shown { workflow, progress, tasks })
    }
}

pub(super) fn progress(work: &mut VerbContext<'_>, id: &WorkflowId) -> VerbResult<BTreeMap<String, u64>> {
    let counts = work.tx.progress(id)?;
    Ok(counts.into_iter().map(|(status, count)| (status.as_str().to_owned(), count)).collect())
}

/// Workflows, newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowList")]
#[serde(default)]
pub struct List {
    pub scope: Scope,
    /// Include ended workflows.
    pub all: bool,
    /// Only with this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<WorkflowStatus>,
    /// Maximum number of workflows.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

/// A workflow with the number of its tasks per status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListedFlow")]
pub struct Listed {
    #[serde(flatten)]
    pub workflow: Workflow,
    /// Number of tasks per status.
    pub progress: BTreeMap<String, u64>,
}

impl Listed {
    /// Number of its tasks that have not ended.
    #[must_use]
    pub fn open(&self) -> u64 {
        let open = TaskStatus::ALL.iter().filter(|status| status.open());
        open.filter_map(|status| self.progress.get(status.as_str())).sum()
    }
}

impl Verb for List {
    type Outcome = Vec<Listed>;
    const NAME: &'static str = "flow.list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Listed>> {
        let statuses = match self.status {
            Some(status) => vec![status],
            None if self.all => Vec::new(),
            None => WorkflowStatus::ALL.into_iter().filter(|status| !status.finished()).collect(),
        };
        let query = WorkflowQuery { scope: self.scope, statuses, limit: self.limit };
        let mut listed = Vec::new();
        for workflow in work.tx.workflows(&query)? {
            let progress = progress(work, &workflow.id)?;
            listed.push(Listed { workflow, progress });
        }
        Ok(listed)
    }
}
