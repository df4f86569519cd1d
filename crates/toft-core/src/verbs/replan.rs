//! Replan: add tasks to a workflow, replace its open tasks, retry or skip a failed task.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find, flow::revive};
use crate::flow::ReviewedWork;
use crate::{
    change::Write,
    flow::{
        Dependency, DependencyKind, PlanTask, Task, TaskState, TaskStatus, Workflow, WorkflowStatus, check_names,
        place_in_queue, propagate, requeue, skip_pointless,
    },
    id::{RepositoryId, TaskId},
    json,
    may::May,
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, TaskQuery},
    token::TokenRole,
};

/// Add tasks to a workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowAdd")]
pub struct Add {
    /// The workflow, by id or prefix.
    pub workflow: String,
    /// The tasks to add.
    #[serde(default)]
    pub tasks: Vec<PlanTask>,
}

/// Replace all open tasks by a new plan. Tasks are matched by name; held and done tasks do not change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReplanRequest")]
pub struct Request {
    /// The workflow, by id or prefix.
    pub workflow: String,
    /// The new plan.
    #[serde(default)]
    pub tasks: Vec<PlanTask>,
}

/// The result of a new plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReplanOutcome")]
pub struct Outcome {
    pub workflow: String,
    /// Names of new tasks.
    pub added: Vec<String>,
    /// Names of changed tasks.
    pub changed: Vec<String>,
    /// Names of tasks that are held or done, and did not change.
    pub kept: Vec<String>,
    /// Names of open tasks that are not in the new plan.
    pub skipped: Vec<String>,
}

impl Verb for Add {
    type Outcome = Outcome;
    const NAME: &'static str = "flow.add";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        check_names(&self.tasks)?;
        let mut workflow = open_workflow(work, &self.workflow)?;
        let existing = tasks_of(work, &workflow)?;
        if let Some(task) = self.tasks.iter().find(|task| existing.iter().any(|known| known.spec.name == task.name)) {
            return Err(Refusal::Exists { what: "task".into(), name: task.name.clone() }.into());
        }
        let additions = build(work, &workflow, &self.tasks, &existing)?;
        work.register_caller()?;
        let added: Vec<_> = self.tasks.iter().map(|task| task.name.clone()).collect();
        work.record(workflow.id.as_str(), "flow.added", json!({ "tasks": added }), vec![])?;
        let new = additions.insert(work, &mut workflow)?;
        save_plan(work, &mut workflow)?;
        skip_pointless(work, &ids(&new))?;
        Ok(Outcome { workflow: workflow.id.to_string(), added, ..Outcome::default() })
    }
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "flow.replan";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        rights::require(work, Action::Replan)?;
        check_names(&self.tasks)?;
        let mut workflow = open_workflow(work, &self.workflow)?;
        let mut existing = tasks_of(work, &workflow)?;
        let mut outcome = Outcome { workflow: workflow.id.to_string(), ..Outcome::default() };
        work.register_caller()?;
        let planned: BTreeMap<_, _> = self.tasks.iter().map(|task| (task.name.as_str(), task)).collect();
        let mut skipped = Vec::new();
        let mut changed = Vec::new();
        for task in &mut existing {
            let movable = matches!(task.state.status, TaskStatus::Pending | TaskStatus::Waiting | TaskStatus::Failed);
            match planned.get(task.spec.name.as_str()) {
                Some(_) if !movable => outcome.kept.push(task.spec.name.clone()),
                Some(plan) => {
                    outcome.changed.push(task.spec.name.clone());
                    rewrite(work, task, plan, workflow.priority)?;
                    changed.push(task.clone());
                }
                None if movable => {
                    outcome.skipped.push(task.spec.name.clone());
                    skipped.push(task.clone());
                }
                None => {}
            }
        }
        let new: Vec<_> = self
            .tasks
            .iter()
            .filter(|task| !existing.iter().any(|known| known.spec.name == task.name))
            .cloned()
            .collect();
        outcome.added = new.iter().map(|task| task.name.clone()).collect();
        let detail = json::to_value(&outcome).unwrap_or_default();
        work.record(workflow.id.as_str(), "flow.replanned", detail, vec![])?;
        let new = build(work, &workflow, &new, &existing)?.insert(work, &mut workflow)?;
        let known = tasks_of(work, &workflow)?;
        let mut wanted = Vec::new();
        for task in &changed {
            if let Some(plan) = planned.get(task.spec.name.as_str()) {
                wanted.push((task, drop_obsolete(work, task, plan, &known)?));
            }
        }
        for (task, edges) in wanted {
            add_missing(work, task, edges)?;
        }
        if workflow.status == WorkflowStatus::Failed {
            revive(work, &mut workflow)?;
        }
        save_plan(work, &mut workflow)?;
        for task in skipped {
            // Skipping one may have skipped another.
            let now = work.tx.task(&task.id)?.filter(|now| now.state.status == task.state.status);
            if let Some(task) = now {
                skip(work, task, "not in the new plan")?;
            }
        }
        skip_pointless(work, &ids(&changed))?;
        skip_pointless(work, &ids(&new))?;
        Ok(outcome)
    }
}

/// Retry or skip a failed task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FlowDecide")]
pub struct Decide {
    /// The task, by id or prefix.
    pub task: String,
    /// Retry it, with all its attempts; otherwise it is skipped.
    #[serde(default)]
    pub retry: bool,
    pub reason: String,
}

impl Verb for Decide {
    type Outcome = Task;
    const NAME: &'static str = "flow.decide";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Task> {
        rights::require(work, Action::Decide)?;
        let mut task = find::last_task(work, &self.task)?;
        let fits = if self.retry {
            task.state.status == TaskStatus::Failed
        } else {
            matches!(task.state.status, TaskStatus::Failed | TaskStatus::Pending | TaskStatus::Waiting)
        };
        if !fits {
            return Err(Refusal::WrongState {
                id: task.id.to_string(),
                state: task.state.status.as_str().into(),
                wanted: if self.retry { "only a failed task can be retried" } else { "it cannot be skipped" }.into(),
            }
            .into());
        }
        let mut workflow = open_workflow(work, task.workflow.as_str())?;
        work.register_caller()?;
        if workflow.status == WorkflowStatus::Failed {
            revive(work, &mut workflow)?;
            workflow.updated = work.now.wall;
            work.tx.write_derived(&[Write::Workflow(workflow.clone())])?;
            requeue(work, &workflow)?;
        }
        if self.retry {
            task.state.status = TaskStatus::Pending;
            task.state.attempt = 0;
            task.state.not_before = None;
            task.state.updated = work.now.wall;
            work.record(
                task.id.as_str(),
                "task.retried",
                json!({ "reason": self.reason }),
                vec![Write::TaskState(task.id.clone(), task.state.clone())],
            )?;
            recount_dependents(work, &task.id)?;
            place_in_queue(work, &task, &workflow)?;
        } else {
            task = skip(work, task, &self.reason)?;
        }
        Ok(task)
    }
}

fn open_workflow(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Workflow> {
    let workflow = find::workflow(work, text)?;
    if workflow.status.finished() {
        return Err(Refusal::WrongState {
            id: workflow.id.to_string(),
            state: workflow.status.as_str().into(),
            wanted: "its plan can no longer change".into(),
        }
        .into());
    }
    Ok(workflow)
}

fn tasks_of(work: &mut VerbContext<'_>, workflow: &Workflow) -> VerbResult<Vec<Task>> {
    Ok(work.tx.tasks(&TaskQuery { workflow: Some(workflow.id.clone()), ..TaskQuery::default() })?)
}

fn save_plan(work: &mut VerbContext<'_>, workflow: &mut Workflow) -> VerbResult<()> {
    if workflow.status == WorkflowStatus::Planning && workflow.tasks > 0 {
        workflow.status = WorkflowStatus::Ready;
    }
    workflow.updated = work.now.wall;
    work.tx.write_derived(&[Write::Workflow(workflow.clone())])?;
    requeue(work, workflow)
}

fn skip(work: &mut VerbContext<'_>, mut task: Task, reason: &str) -> VerbResult<Task> {
    let from = task.state.status;
    task.state.status = TaskStatus::Skipped;
    task.state.updated = work.now.wall;
    work.record(
        task.id.as_str(),
        "task.skipped",
        json!({ "reason": reason }),
        vec![Write::TaskState(task.id.clone(), task.state.clone()), Write::DropQueue(task.id.clone())],
    )?;
    propagate(work, &task, from)?;
    Ok(task)
}

/// New tasks of a workflow, checked; nothing is written yet.
pub(super) struct Additions {
    tasks: Vec<Task>,
    edges: Vec<Dependency>,
    /// Number of new tasks that wait for each existing task.
    waiters: BTreeMap<TaskId, u32>,
    repositories: Vec<RepositoryId>,
}

/// Turns planned tasks into new tasks of a workflow. All refusals come from this function, so that
/// [`Additions::insert`] only writes.
pub(super) fn build(
    work: &mut VerbContext<'_>,
    workflow: &Workflow,
    planned: &[PlanTask],
    existing: &[Task],
) -> VerbResult<Additions> {
    let first = existing.iter().map(|task| task.order + 1).max().unwrap_or(0);
    let mut repositories = workflow.repositories.clone();
    let mut tasks = Vec::with_capacity(planned.len());
    for (position, plan) in planned.iter().enumerate() {
        let mut task = Task {
            id: TaskId::generate(work.ids),
            workflow: workflow.id.clone(),
            order: first + position as u32,
            spec: plan.spec(workflow.priority, work.policy.max_attempts, None),
            place: work.place.clone(),
            created: work.now.wall,
            state: TaskState {
                status: TaskStatus::Pending,
                attempt: 0,
                fence: 0,
                open_blockers: 0,
                unblocks: 0,
                not_before: None,
                outcome: None,
                updated: work.now.wall,
            },
        };
        if let Some(text) = &plan.repository {
            let repository = find_repository(work, text)?;
            if work.place.repository.as_ref() != Some(&repository) {
                task.place.worktree = None;
            }
            if !repositories.contains(&repository) {
                repositories.push(repository.clone());
            }
            task.place.repository = Some(repository);
        }
        tasks.push(task);
    }
    if repositories.len() > 1
        && let Some(plan) = planned.iter().find(|plan| plan.repository.is_none())
    {
        return Err(Refusal::Invalid {
            field: "tasks.repository".into(),
            problem: format!("`{}` must name its repository, since the workflow spans several", plan.name),
        }
        .into());
    }
    let edges = edges(work, planned, &tasks, existing)?;
    refuse_loop(&tasks, &edges)?;
    let statuses: BTreeMap<_, _> =
        existing.iter().chain(&tasks).map(|task| (task.id.clone(), task.state.status)).collect();
    let mut blockers: BTreeMap<TaskId, u32> = BTreeMap::new();
    let mut waiters: BTreeMap<TaskId, u32> = BTreeMap::new();
    for edge in &edges {
        let status = match statuses.get(&edge.on) {
            Some(status) => Some(*status),
            None => work.tx.task(&edge.on)?.map(|task| task.state.status),
        };
        if edge.holds_back(status) {
            *blockers.entry(edge.task.clone()).or_default() += 1;
        }
        if edge.kind == DependencyKind::Blocks {
            *waiters.entry(edge.on.clone()).or_default() += 1;
        }
    }
    for task in &mut tasks {
        task.state.open_blockers = blockers.get(&task.id).copied().unwrap_or(0);
        task.state.unblocks = waiters.remove(&task.id).unwrap_or(0);
    }
    Ok(Additions { tasks, edges, waiters, repositories })
}

impl Additions {
    /// The new tasks.
    pub(super) fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Lets them review finished work, in any worktree.
    pub(super) fn review(&mut self, work: &ReviewedWork) {
        for task in &mut self.tasks {
            task.spec.reviews = Some(work.clone());
            task.place.worktree = None;
        }
    }

    /// Writes them. The caller writes the workflow and queues them.
    pub(super) fn insert(self, work: &mut VerbContext<'_>, workflow: &mut Workflow) -> VerbResult<Vec<Task>> {
        let mut writes: Vec<Write> = self.tasks.iter().cloned().map(Write::Task).collect();
        writes.extend(self.edges.into_iter().map(Write::Dependency));
        work.tx.write_derived(&writes)?;
        for (id, count) in self.waiters {
            add_waiters(work, &id, i64::from(count))?;
        }
        workflow.repositories = self.repositories;
        workflow.tasks += self.tasks.len() as u32;
        Ok(self.tasks)
    }
}

/// The dependencies that a plan names, by name in the plan or the workflow, or by id.
fn edges(
    work: &mut VerbContext<'_>,
    planned: &[PlanTask],
    tasks: &[Task],
    existing: &[Task],
) -> VerbResult<Vec<Dependency>> {
    let names: BTreeMap<&str, &TaskId> =
        existing.iter().chain(tasks).map(|task| (task.spec.name.as_str(), &task.id)).collect();
    let mut edges = BTreeSet::new();
    for (plan, task) in planned.iter().zip(tasks) {
        for (kind, list) in [
            (DependencyKind::Blocks, &plan.needs),
            (DependencyKind::Informs, &plan.informed_by),
            (DependencyKind::OnFailure, &plan.on_failure_of),
        ] {
            for text in list {
                let on = match names.get(text.as_str()) {
                    Some(id) => (*id).clone(),
                    None if text.starts_with(TaskId::PREFIX) => find::task(work, text)?.id,
                    None => {
                        return Err(Refusal::Invalid {
                            field: "tasks.needs".into(),
                            problem: format!("`{}` needs `{text}`, which the plan does not have", plan.name),
                        }
                        .into());
                    }
                };
                edges.insert(Dependency { task: task.id.clone(), on, kind });
            }
        }
    }
    let mut groups: BTreeMap<u32, Vec<&TaskId>> = BTreeMap::new();
    for task in existing.iter().chain(tasks) {
        if let Some(group) = task.spec.parallel_group {
            groups.entry(group).or_default().push(&task.id);
        }
    }
    for task in tasks {
        let lower = task.spec.parallel_group.and_then(|group| groups.range(..group).next_back());
        for on in lower.into_iter().flat_map(|(_, ids)| ids) {
            edges.insert(Dependency { task: task.id.clone(), on: (*on).clone(), kind: DependencyKind::Blocks });
        }
    }
    Ok(edges.into_iter().collect())
}

/// Refuses a cycle among new tasks. Existing tasks do not depend on them, so no other cycle is possible.
fn refuse_loop(tasks: &[Task], edges: &[Dependency]) -> Result<(), Refusal> {
    let mut waits: BTreeMap<&TaskId, Vec<&TaskId>> = tasks.iter().map(|task| (&task.id, Vec::new())).collect();
    let mut waiters: BTreeMap<&TaskId, Vec<&TaskId>> = BTreeMap::new();
    for edge in edges.iter().filter(|edge| edge.kind != DependencyKind::Informs && waits.contains_key(&edge.on)) {
        waiters.entry(&edge.on).or_default().push(&edge.task);
    }
    for edge in edges.iter().filter(|edge| edge.kind != DependencyKind::Informs) {
        if waiters.contains_key(&edge.on) {
            waits.entry(&edge.task).or_default().push(&edge.on);
        }
    }
    let mut left: BTreeMap<&TaskId, usize> = waits.iter().map(|(id, on)| (*id, on.len())).collect();
    let mut free: Vec<&TaskId> = left.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    while let Some(id) = free.pop() {
        left.remove(id);
        for waiter in waiters.get(id).into_iter().flatten() {
            if let Some(count) = left.get_mut(*waiter) {
                *count -= 1;
                if *count == 0 {
                    free.push(waiter);
                }
            }
        }
    }
    let Some(start) = left.keys().next().copied() else { return Ok(()) };
    let name =
        |id: &TaskId| tasks.iter().find(|task| task.id == *id).map_or(id.to_string(), |task| task.spec.name.clone());
    let mut path = vec![start];
    while let Some(next) = waits[path[path.len() - 1]].iter().find(|id| left.contains_key(*id)) {
        let seen = path.iter().position(|id| id == next);
        path.push(next);
        if let Some(position) = seen {
            path.drain(..position);
            break;
        }
    }
    Err(Refusal::Cycle { path: path.into_iter().map(name).collect() })
}

/// Refuses a dependency `task -> on` if `on` already waits for `task`, directly or indirectly.
pub(super) fn refuse_cycle(work: &mut VerbContext<'_>, on: &TaskId, task: &TaskId) -> VerbResult<()> {
    let mut seen = BTreeSet::from([on.clone()]);
    let mut look = vec![on.clone()];
    while let Some(id) = look.pop() {
        if id == *task {
            return Err(Refusal::Cycle { path: vec![task.to_string(), on.to_string(), task.to_string()] }.into());
        }
        for (dependency, _) in work.tx.dependencies(&id)? {
            if dependency.kind != DependencyKind::Informs && seen.insert(dependency.on.clone()) {
                look.push(dependency.on);
            }
        }
    }
    Ok(())
}

fn rewrite(work: &mut VerbContext<'_>, task: &mut Task, plan: &PlanTask, priority: u8) -> VerbResult<()> {
    task.spec = plan.spec(priority, task.spec.max_attempts, task.spec.assigned_to.take());
    task.state.attempt = 0;
    if task.state.status == TaskStatus::Failed {
        task.state.status = TaskStatus::Pending;
        task.state.not_before = None;
    }
    task.state.updated = work.now.wall;
    Ok(work.tx.write_derived(&[Write::Task(task.clone())])?)
}

/// Removes the dependencies of an existing task that its new plan does not name; returns those that it does.
fn drop_obsolete(
    work: &mut VerbContext<'_>,
    task: &Task,
    plan: &PlanTask,
    known: &[Task],
) -> VerbResult<Vec<Dependency>> {
    let others: Vec<_> = known.iter().filter(|other| other.id != task.id).cloned().collect();
    let wanted = edges(work, std::slice::from_ref(plan), std::slice::from_ref(task), &others)?;
    for (edge, _) in work.tx.dependencies(&task.id)? {
        if !wanted.contains(&edge) {
            work.tx.write_derived(&[Write::DropDependency(edge.clone())])?;
            if edge.kind == DependencyKind::Blocks {
                add_waiters(work, &edge.on, -1)?;
            }
        }
    }
    Ok(wanted)
}

/// Adds the missing dependencies of its new plan to an existing task, after obsolete ones were removed everywhere.
fn add_missing(work: &mut VerbContext<'_>, task: &Task, wanted: Vec<Dependency>) -> VerbResult<()> {
    let had: Vec<_> = work.tx.dependencies(&task.id)?.into_iter().map(|(dependency, _)| dependency).collect();
    for edge in wanted.into_iter().filter(|edge| !had.contains(edge)) {
        if edge.kind != DependencyKind::Informs {
            refuse_cycle(work, &edge.on, &task.id)?;
        }
        work.tx.write_derived(&[Write::Dependency(edge.clone())])?;
        if edge.kind == DependencyKind::Blocks {
            add_waiters(work, &edge.on, 1)?;
        }
    }
    recount(work, &task.id)?;
    recount_dependents(work, &task.id)
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

fn add_waiters(work: &mut VerbContext<'_>, id: &TaskId, count: i64) -> VerbResult<()> {
    let Some(mut task) = work.tx.task(id)? else { return Ok(()) };
    task.state.unblocks = u32::try_from(i64::from(task.state.unblocks) + count).unwrap_or(0);
    work.tx.write_derived(&[Write::TaskState(task.id.clone(), task.state.clone())])?;
    let workflow = work.require_workflow(&task.workflow)?;
    place_in_queue(work, &task, &workflow)
}

/// Recounts a task's open blockers from its dependencies.
fn recount(work: &mut VerbContext<'_>, id: &TaskId) -> VerbResult<()> {
    let Some(mut task) = work.tx.task(id)? else { return Ok(()) };
    let dependencies = work.tx.dependencies(id)?;
    let open = dependencies.iter().filter(|(dependency, status)| dependency.holds_back(*status)).count() as u32;
    if open != task.state.open_blockers {
        task.state.open_blockers = open;
        work.tx.write_derived(&[Write::TaskState(task.id.clone(), task.state.clone())])?;
        let workflow = work.require_workflow(&task.workflow)?;
        place_in_queue(work, &task, &workflow)?;
    }
    Ok(())
}

/// Recounts the open blockers of every task of a workflow.
pub(super) fn recount_all(work: &mut VerbContext<'_>, workflow: &Workflow) -> VerbResult<()> {
    for task in tasks_of(work, workflow)? {
        recount(work, &task.id)?;
    }
    Ok(())
}

pub(super) fn recount_dependents(work: &mut VerbContext<'_>, id: &TaskId) -> VerbResult<()> {
    for dependency in work.tx.dependents(id)? {
        recount(work, &dependency.task)?;
    }
    Ok(())
}

fn find_repository(work: &mut VerbContext<'_>, text: &str) -> VerbResult<RepositoryId> {
    let matching: Vec<_> = work
        .tx
        .repositories()?
        .into_iter()
        .filter(|repository| repository.name == text || repository.id.as_str().starts_with(text))
        .collect();
    match matching.as_slice() {
        [] => Err(Refusal::NotFound { what: "repository".into(), text: text.to_owned() }.into()),
        [one] => Ok(one.id.clone()),
        many => Err(Refusal::Ambiguous {
            text: text.to_owned(),
            candidates: many.iter().map(|repository| repository.id.to_string()).collect(),
        }
        .into()),
    }
}
