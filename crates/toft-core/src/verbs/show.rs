//! Show: one entity with all details.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, VerbContext, agent, find, flow};
use crate::{
    change::Event,
    checkpoint::{Checkpoint, CheckpointKind},
    flow::{Attempt, Dependency, Task, TaskStatus},
    gate::Gate,
    id::{AgentId, TaskId},
    may::May,
    ready::Reason,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::{Access, EventQuery, WorkspaceQuery},
    time::Timestamp,
    token::TokenRole,
    workspace::WorkspaceState,
};

/// Show the entity that `id` names.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ShowRequest")]
#[serde(default)]
pub struct Request {
    /// A task, workflow or agent, by id, prefix or name; `@` is the held task.
    pub id: String,
    /// Also explain why a task cannot start.
    pub why: bool,
    /// Only the value under this key of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Number of checkpoints and events to show.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

/// The entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[schemars(rename = "ShowOutcome")]
pub enum Outcome {
    /// A task.
    Task(Box<ShownTask>),
    /// A workflow.
    Workflow(Box<flow::Shown>),
    /// An agent.
    Agent(Box<agent::Listed>),
    /// A value of a task.
    State { task: TaskId, key: String, value: Value },
}

/// A task with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownTask {
    pub task: Task,
    pub workflow_title: String,
    /// A summary of its plan: its newest plan checkpoint, else the first line of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceView>,
    /// Its holder, and when the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderView>,
    /// Its dependencies, with the status of their targets.
    pub needs: Vec<(Dependency, Option<TaskStatus>)>,
    /// The tasks that depend on it.
    pub needed_by: Vec<Dependency>,
    pub gates: Vec<Gate>,
    /// Why it cannot start, if requested; empty if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Vec<Reason>>,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptView>,
    /// Its checkpoints, newest first.
    pub checkpoints: Vec<Checkpoint>,
    /// Its values, by key.
    pub state: Vec<(String, Value)>,
    /// Its history, oldest first.
    pub events: Vec<Event>,
}

/// The workspace of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceView {
    pub name: String,
    /// Its directory.
    pub path: String,
    /// The branch that is checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    pub state: WorkspaceState,
}

/// The holder of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HolderView {
    /// Its name.
    pub agent: String,
    /// Number of the lease.
    pub fence: u64,
    /// When the lease ends unless it is renewed.
    pub until: Timestamp,
}

/// An attempt with its agent's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    #[serde(flatten)]
    pub attempt: Attempt,
    /// The agent's name.
    pub agent_name: String,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "show";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer).or_agent(|request, job| job.is_for(&request.id));

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        if let Some(key) = &self.state {
            let task = find::task(work, &self.id)?;
            return match work.tx.state(&task.id, key)? {
                Some(value) => Ok(Outcome::State { task: task.id, key: key.clone(), value }),
                None => Err(Refusal::NotFound { what: "state key".into(), text: key.clone() }.into()),
            };
        }
        Ok(match find::anything(work, &self.id)? {
            find::Found::Task(task) => Outcome::Task(Box::new(self.task(work, task)?)),
            find::Found::Workflow(workflow) => {
                let shown = flow::Show { id: workflow.id.to_string(), limit: self.limit }.run(work)?;
                Outcome::Workflow(Box::new(shown))
            }
            find::Found::Agent(found) => Outcome::Agent(Box::new(agent::listed(work, found)?)),
        })
    }
}

impl Request {
    fn task(&self, work: &mut VerbContext<'_>, task: Task) -> VerbResult<ShownTask> {
        let id = task.id.clone();
        let holder = match work.tx.lease(&id)? {
            Some(lease) => Some(HolderView {
                agent: work.agent_name(&lease.agent)?,
                fence: lease.fence.number,
                until: lease.expires(),
            }),
            None => None,
        };
        let mut attempts = Vec::new();
        for attempt in work.tx.attempts(&id)? {
            let agent: &AgentId = &attempt.agent;
            attempts.push(AttemptView { agent_name: work.agent_name(agent)?, attempt });
        }
        let why = if self.why { Some(super::ready::why(work, &task)?) } else { None };
        Ok(ShownTask {
            workflow_title: work.require_workflow(&task.workflow)?.title,
            plan_summary: plan_summary(work, &task)?,
            workspace: workspace(work, &task)?,
            holder,
            needs: work.tx.dependencies(&id)?,
            needed_by: work.tx.dependents(&id)?,
            gates: work.tx.gates(&id)?,
            why,
            attempts,
            checkpoints: work.tx.checkpoints(&id, self.limit)?,
            state: work.tx.states(&id)?,
            events: work.tx.events(&EventQuery {
                entity: Some(id.to_string()),
                newest: true,
                limit: self.limit,
                ..EventQuery::default()
            })?,
            task,
        })
    }
}

fn plan_summary(work: &mut VerbContext<'_>, task: &Task) -> VerbResult<Option<String>> {
    /// Maximum number of checkpoints that are read.
    const LOOKED_AT: usize = 50;
    let planned = |row: &Checkpoint| matches!(row.kind, CheckpointKind::Plan | CheckpointKind::Replan);
    let newest = work.tx.checkpoints(&task.id, LOOKED_AT)?.into_iter().find(planned);
    let first_line = || task.spec.plan.as_deref().and_then(|plan| plan.lines().find(|line| !line.trim().is_empty()));
    Ok(newest.map(|row| row.summary).or_else(|| first_line().map(|line| line.trim().to_owned())))
}

fn workspace(work: &mut VerbContext<'_>, task: &Task) -> VerbResult<Option<WorkspaceView>> {
    let query = WorkspaceQuery { repository: task.place.repository.clone(), live: true, ..WorkspaceQuery::default() };
    let found = work.tx.workspaces(&query)?.into_iter().find(|row| row.task.as_ref() == Some(&task.id));
    Ok(found.map(|row| WorkspaceView { name: row.name, path: row.path, branch: row.branch, state: row.state }))
}
