//! Finds entities by user input: a whole id, a unique prefix, or `@` for the held task.

use super::{Verb, VerbContext};
use crate::{
    agent::Agent,
    flow::{Task, Workflow},
    id::{AgentId, TaskId, WORD, WorkflowId, WorkspaceId},
    may::May,
    refusal::{Refusal, VerbError, VerbResult},
    schema::JsonSchema,
    store::{Access, EventQuery, LeasesOf, StoreError, StoreTx, TaskQuery, WorkspaceQuery},
    token::TokenRole,
    workspace::Workspace,
};
use serde::{Deserialize, Serialize};

/// Maximum number of candidates that are listed for an ambiguous prefix.
const NAMED: usize = 5;

pub(super) fn unique(work: &mut VerbContext<'_>, what: &'static str, kind: &str, text: &str) -> VerbResult<String> {
    let prefix = if text.starts_with(kind) { text.to_owned() } else { format!("{kind}{text}") };
    if prefix.len() == kind.len() + WORD {
        return Ok(prefix);
    }
    let mut candidates = work.tx.ids(&prefix, NAMED + 1)?;
    match candidates.len() {
        _ if candidates.first() == Some(&prefix) => Ok(prefix),
        0 => Err(Refusal::NotFound { what: what.into(), text: text.to_owned() }.into()),
        1 => Ok(candidates.remove(0)),
        _ => {
            candidates.truncate(NAMED);
            Err(Refusal::Ambiguous { text: text.to_owned(), candidates }.into())
        }
    }
}

/// Resolve a text to a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TaskNamed {
    /// A whole id, a unique prefix, an issue that is in progress, or `@`.
    pub text: String,
}

impl Verb for TaskNamed {
    type Outcome = TaskId;
    const NAME: &'static str = "task.named";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer).or_agent(|_, _| true);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<TaskId> {
        task(work, &self.text).map(|task| task.id)
    }
}

/// The task that `text` names; for an issue, the task of its active workflow.
pub(crate) fn task(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Task> {
    if text.contains('-')
        && let Some(workflow) = work.tx.workflow_of_issue(text)?
        && let Some(task) = of_workflow(work, &workflow)?
    {
        return Ok(task);
    }
    let id = if text == "@" { mine(work)? } else { TaskId::known(unique(work, "task", TaskId::PREFIX, text)?) };
    match work.tx.task(&id)? {
        Some(task) => Ok(task),
        None => Err(Refusal::NotFound { what: "task".into(), text: text.to_owned() }.into()),
    }
}

/// The task that `text` names; for an issue without an active workflow, its last task.
pub(crate) fn last_task(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Task> {
    /// Maximum number of workflows of an issue that are read; each has one event when it ends.
    const LOOKED_AT: usize = 50;
    let missing = match task(work, text) {
        Err(VerbError::Refused(missing @ Refusal::NotFound { .. })) if text.contains('-') => missing,
        found => return found,
    };
    let entity = Some(text.to_owned());
    let told = EventQuery { entity, newest: true, limit: LOOKED_AT, ..EventQuery::default() };
    let events = work.tx.events(&told)?;
    let last = events.iter().rev().find_map(|event| event.detail["workflow"].as_str());
    let workflow = match last {
        Some(id) => work.tx.workflow(&WorkflowId::known(id))?,
        None => None,
    };
    let of = TaskQuery { workflow: workflow.map(|workflow| workflow.id), ..TaskQuery::default() };
    let tasks = if of.workflow.is_some() { work.tx.tasks(&of)? } else { Vec::new() };
    tasks.into_iter().max_by_key(|task| task.state.updated).ok_or_else(|| missing.into())
}

/// The task of a workflow that the caller holds, or else the first that has not ended, or the last that ended.
fn of_workflow(work: &mut VerbContext<'_>, workflow: &Workflow) -> VerbResult<Option<Task>> {
    let me = work.tx.agent_named(work.actor)?.map(|me| me.id);
    let leases = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?;
    if let Some(mine) = leases.iter().find(|lease| Some(&lease.agent) == me.as_ref()) {
        return Ok(work.tx.task(&mine.task)?);
    }
    let of = TaskQuery { workflow: Some(workflow.id.clone()), ..TaskQuery::default() };
    let tasks = work.tx.tasks(&of)?;
    let open = tasks.iter().find(|task| task.state.status.open());
    // All are done, and the work has not landed yet.
    Ok(open.or_else(|| tasks.iter().max_by_key(|task| task.state.updated)).cloned())
}

/// The only task that the caller holds.
fn mine(work: &mut VerbContext<'_>) -> VerbResult<TaskId> {
    let leases = match work.tx.agent_named(work.actor)? {
        Some(me) => work.tx.leases(&LeasesOf::Agent(me.id))?,
        None => Vec::new(),
    };
    match leases.as_slice() {
        [] => Err(Refusal::HoldsNothing { agent: work.actor.to_owned() }.into()),
        [one] => Ok(one.task.clone()),
        many => {
            let candidates = many.iter().map(|lease| called(work.tx, &lease.task));
            Err(Refusal::Ambiguous { text: "@".to_owned(), candidates: candidates.collect::<Result<_, _>>()? }.into())
        }
    }
}

/// The display id of a task: that of its issue, if the issue has no other task.
pub fn called(tx: &mut dyn StoreTx, task: &TaskId) -> Result<String, StoreError> {
    let issue = match tx.task(task)? {
        Some(task) => issue_of(tx, &task)?,
        None => None,
    };
    Ok(issue.unwrap_or_else(|| task.to_string()))
}

/// The issue that a task belongs to, or the task itself.
pub fn called_with_parts(tx: &mut dyn StoreTx, task: &TaskId) -> Result<String, StoreError> {
    let workflow = match tx.task(task)? {
        Some(task) => tx.workflow(&task.workflow)?,
        None => None,
    };
    Ok(workflow.and_then(|workflow| workflow.issue().map(str::to_owned)).unwrap_or_else(|| task.to_string()))
}

/// The issue whose only task this is.
pub(super) fn issue_of(tx: &mut dyn StoreTx, task: &Task) -> Result<Option<String>, StoreError> {
    let workflow = tx.workflow(&task.workflow)?.filter(|workflow| workflow.tasks == 1);
    Ok(workflow.and_then(|workflow| workflow.issue().map(str::to_owned)))
}

/// The workflow that `text` names; for an issue, its active or last workflow.
pub(crate) fn workflow(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Workflow> {
    if text.contains('-') {
        let missing = || Refusal::NotFound { what: "workflow".into(), text: text.to_owned() };
        let task = last_task(work, text).map_err(|error| match error {
            VerbError::Refused(Refusal::NotFound { .. }) => missing().into(),
            error => error,
        })?;
        return work.require_workflow(&task.workflow);
    }
    let id = WorkflowId::known(unique(work, "workflow", WorkflowId::PREFIX, text)?);
    work.require_workflow(&id)
}

/// The agent that `text` names, by name or id.
pub(crate) fn agent(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Agent> {
    if let Some(agent) = work.tx.agent_named(text)? {
        return Ok(agent);
    }
    let found = if text.starts_with(AgentId::PREFIX) {
        let id = AgentId::known(unique(work, "agent", AgentId::PREFIX, text)?);
        work.tx.agent(&id)?
    } else {
        None
    };
    found.ok_or_else(|| Refusal::NotFound { what: "agent".into(), text: text.to_owned() }.into())
}

/// The workspace that `text` names: by name, path, id or prefix, or by its task or issue. A live workspace takes
/// precedence over a removed one.
pub(crate) fn workspace(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Workspace> {
    let repository = work.place.repository.clone();
    for live in [true, false] {
        let query = WorkspaceQuery { repository: repository.clone(), live, limit: 0 };
        let rows = work.tx.workspaces(&query)?;
        let fits = |row: &&Workspace| {
            row.name == text
                || row.path == text
                || row.id.as_str() == text
                || row.task.as_ref().is_some_and(|id| id.as_str() == text)
        };
        if let Some(found) = rows.iter().find(fits) {
            return Ok(found.clone());
        }
    }
    let unknown = || Refusal::NotFound { what: "workspace".into(), text: text.to_owned() };
    if text.starts_with(WorkspaceId::PREFIX) {
        let id = WorkspaceId::known(unique(work, "workspace", WorkspaceId::PREFIX, text)?);
        return work.tx.workspace(&id)?.ok_or_else(|| unknown().into());
    }
    match task(work, text) {
        Ok(task) if task.id.as_str() != text => workspace(work, task.id.as_str()),
        Err(stop) if text == "@" => Err(stop),
        _ => Err(unknown().into()),
    }
}

/// The entity that a text names.
pub enum Found {
    /// A task.
    Task(Task),
    /// A workflow.
    Workflow(Workflow),
    /// An agent.
    Agent(Agent),
}

/// The entity that `text` names: by the prefix of its kind, else a task, else a workflow, else an agent.
pub(crate) fn anything(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Found> {
    if text.starts_with(WorkflowId::PREFIX) {
        return Ok(Found::Workflow(workflow(work, text)?));
    }
    if text.starts_with(AgentId::PREFIX) {
        return Ok(Found::Agent(agent(work, text)?));
    }
    match task(work, text) {
        Ok(task) => Ok(Found::Task(task)),
        Err(VerbError::Refused(Refusal::NotFound { .. })) => match workflow(work, text) {
            Ok(workflow) => Ok(Found::Workflow(workflow)),
            Err(VerbError::Refused(Refusal::NotFound { .. })) => match work.tx.agent_named(text)? {
                Some(agent) => Ok(Found::Agent(agent)),
                None => Err(Refusal::NotFound { what: "task, workflow or agent".into(), text: text.to_owned() }.into()),
            },
            Err(stop) => Err(stop),
        },
        Err(stop) => Err(stop),
    }
}
