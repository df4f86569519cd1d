//! Show: one thing, whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, VerbContext, agent, find, flow};
use crate::{
    change::Event,
    checkpoint::{Checkpoint, CheckpointKind},
    flow::{Attempt, Dependency, Task, TaskStatus},
    gate::Gate,
    id::{AgentId, TaskId},
    ready::Reason,
    refusal::{Refusal, VerbResult},
    store::{Access, EventQuery, WorkspaceQuery},
    time::Timestamp,
    workspace::WorkspaceState,
};

/// Show whatever `id` names.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ShowRequest")]
#[serde(default)]
pub struct Request {
    /// A task, workflow or agent, by id, prefix or name; `@` is what I hold.
    pub id: String,
    /// Also say why a task cannot start.
    pub why: bool,
    /// Only the value under this key of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// How many checkpoints and events to show.
    pub limit: usize,
}

/// What was found.
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
    State {
        /// Of which task.
        task: TaskId,
        /// Under which key.
        key: String,
        /// The value.
        value: Value,
    },
}

/// A task with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownTask {
    /// The task.
    pub task: Task,
    /// Title of its workflow.
    pub workflow_title: String,
    /// How it is done, in short: its newest plan checkpoint, else the first line of its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_summary: Option<String>,
    /// Where it is worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceView>,
    /// Who holds it, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderView>,
    /// What it depends on, and how far that is.
    pub needs: Vec<(Dependency, Option<TaskStatus>)>,
    /// What depends on it.
    pub needed_by: Vec<Dependency>,
    /// What it waits for.
    pub gates: Vec<Gate>,
    /// Why it cannot start, if that was asked; empty if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Vec<Reason>>,
    /// Holds on it, oldest first.
    pub attempts: Vec<AttemptView>,
    /// Newest first.
    pub checkpoints: Vec<Checkpoint>,
    /// Its values, by key.
    pub state: Vec<(String, Value)>,
    /// Its history, oldest first.
    pub events: Vec<Event>,
}

/// The workspace of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceView {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: String,
    /// The branch in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How far it is.
    pub state: WorkspaceState,
}

/// Who holds a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HolderView {
    /// By name.
    pub agent: String,
    /// Number of the lease.
    pub fence: u64,
    /// When it ends unless renewed.
    pub until: Timestamp,
}

/// An attempt with its agent's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// The attempt.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// Who made it.
    pub agent_name: String,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "show";
    const ACCESS: Access = Access::Read;

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
    /// How many checkpoints are looked at.
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
