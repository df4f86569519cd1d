//! Context: everything that an agent needs to continue a task.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, VerbContext, find, show::AttemptView};
use crate::{
    checkpoint::Checkpoint,
    flow::{DependencyKind, Outcome as TaskOutcome, Task, Workflow},
    gate::Gate,
    id::LandingId,
    landing::Landing,
    may::May,
    refusal::VerbResult,
    schema::JsonSchema,
    store::{Access, TaskQuery},
    token::TokenRole,
};

/// Maximum number of checkpoints that are read.
const CHECKPOINTS: usize = 50;
/// Maximum number of landings that conflict.
const AGAINST: usize = 10;
/// Maximum number of tasks of the same workflow.
const SIBLINGS: usize = 200;

/// The context of a task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ContextRequest")]
pub struct Request {
    /// The task, by id or prefix; `@` is the held task.
    pub id: String,
}

/// The context of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ContextOutcome")]
pub struct Outcome {
    pub task: Task,
    pub workflow: Workflow,
    /// Checkpoints with their authors, newest first.
    pub checkpoints: Vec<(Checkpoint, String)>,
    /// Ended attempts, newest first.
    pub attempts: Vec<AttemptView>,
    /// Questions of earlier holders, with their answers, newest first.
    pub answers: Vec<Gate>,
    /// The tasks that it depends on, with the kind of dependency.
    pub needs: Vec<(DependencyKind, Task)>,
    /// The other tasks of its workflow, in plan order.
    pub siblings: Vec<Task>,
    /// Its values, by key.
    pub state: Vec<(String, Value)>,
    /// Its finished work, if that was sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<Landing>,
    /// What landed in the files in which it conflicts, with the report of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<(Landing, Option<TaskOutcome>)>,
    /// The finished work that it reviews, with its report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewed: Option<(Landing, Option<TaskOutcome>)>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "context";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer).or_agent(|request, job| job.is_for(&request.id));

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let task = find::last_task(work, &self.id)?;
        let workflow = work.require_workflow(&task.workflow)?;
        let mut checkpoints = Vec::new();
        for checkpoint in work.tx.checkpoints(&task.id, CHECKPOINTS)? {
            let by = work.agent_name(&checkpoint.agent)?;
            checkpoints.push((checkpoint, by));
        }
        let mut attempts = Vec::new();
        for attempt in work.tx.attempts(&task.id)?.into_iter().rev().filter(|attempt| attempt.ended.is_some()) {
            attempts.push(AttemptView { agent_name: work.agent_name(&attempt.agent)?, attempt });
        }
        let mut answers = work.tx.gates(&task.id)?;
        answers.retain(|gate| gate.opened.is_some());
        answers.reverse();
        let mut needs = Vec::new();
        for (dependency, _) in work.tx.dependencies(&task.id)? {
            needs.extend(work.tx.task(&dependency.on)?.map(|on| (dependency.kind, on)));
        }
        let of = TaskQuery { workflow: Some(workflow.id.clone()), limit: SIBLINGS, ..TaskQuery::default() };
        let mut siblings = if workflow.tasks > 1 { work.tx.tasks(&of)? } else { Vec::new() };
        siblings.retain(|sibling| sibling.id != task.id && !needs.iter().any(|(_, on)| on.id == sibling.id));
        let state = work.tx.states(&task.id)?;
        let landing = work.tx.landing(&Landing::id_of(&task.id))?.filter(|landing| landing.bounce().is_some());
        let mut against = Vec::new();
        for id in landing.iter().filter_map(Landing::bounce).flat_map(|bounce| &bounce.against).take(AGAINST) {
            against.extend(with_report(work, id)?);
        }
        let reviewed = match &task.spec.reviews {
            Some(reviewed) => with_report(work, &reviewed.landing)?,
            None => None,
        };
        Ok(Outcome {
            task,
            workflow,
            checkpoints,
            attempts,
            answers,
            needs,
            siblings,
            state,
            landing,
            against,
            reviewed,
        })
    }
}

/// A landing and the report of the agent that finished it.
fn with_report(work: &mut VerbContext<'_>, id: &LandingId) -> VerbResult<Option<(Landing, Option<TaskOutcome>)>> {
    let Some(landing) = work.tx.landing(id)? else { return Ok(None) };
    let report = match &landing.task {
        Some(task) => work.tx.task(task)?.and_then(|task| task.state.outcome),
        None => None,
    };
    Ok(Some((landing, report)))
}
