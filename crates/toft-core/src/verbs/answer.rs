//! Answer: open a gate that a task waits for.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find, inbox};
use crate::{
    change::Write,
    flow::{Task, TaskStatus, place_in_queue},
    gate::{Gate, GateKind, Opened},
    id::{GateId, TaskId},
    may::May,
    message::{DeliveryState, HUMAN, MessageKind},
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Answer the question of a waiting task. The task returns to the queue with the answer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AnswerRequest")]
pub struct Request {
    /// The gate, or the task that waits, by id or prefix.
    pub id: String,
    pub answer: String,
}

/// The result of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AnswerOutcome")]
pub struct Outcome {
    /// The opened gate.
    pub gate: Gate,
    /// The task after the answer.
    pub task: Task,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "answer";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        if self.answer.trim().is_empty() {
            return Err(Refusal::Invalid { field: "text".into(), problem: "the answer is empty".into() }.into());
        }
        let (mut gate, mut task) = self.find(work)?;
        if matches!(gate.kind, GateKind::Human { .. }) {
            rights::require(work, Action::Answer)?;
        }
        gate.opened = Some(Opened { at: work.now.wall, by: work.actor.to_owned(), answer: self.answer.clone() });
        let mut writes = vec![Write::Gate(gate.clone())];
        let others = work.tx.gates(&task.id)?;
        let now = work.now.wall;
        if task.state.status == TaskStatus::Waiting
            && !others.iter().any(|other| other.id != gate.id && other.closed(now))
        {
            task.state.status = TaskStatus::Pending;
            task.state.updated = now;
            writes.push(Write::TaskState(task.id.clone(), task.state.clone()));
        }
        work.record(task.id.as_str(), "task.answered", json!({ "gate": gate.id, "answer": self.answer }), writes)?;
        let workflow = work.require_workflow(&task.workflow)?;
        place_in_queue(work, &task, &workflow)?;
        // The question itself needs no reading any more.
        for letter in work.tx.inbox(HUMAN, true, usize::MAX)? {
            if letter.message.kind == MessageKind::Question && letter.message.task.as_ref() == Some(&task.id) {
                inbox::mark(work, HUMAN, &letter, DeliveryState::Read)?;
            }
        }
        Ok(Outcome { gate, task })
    }
}

impl Request {
    fn find(&self, work: &mut VerbContext<'_>) -> VerbResult<(Gate, Task)> {
        let none = || Refusal::NotFound { what: "open question".into(), text: self.id.clone() };
        let gate = if self.id.starts_with(GateId::PREFIX) {
            let id = GateId::known(find::unique(work, "question", GateId::PREFIX, &self.id)?);
            work.tx.gate(&id)?.filter(Gate::asks)
        } else {
            let task: TaskId = find::task(work, &self.id)?.id;
            work.tx.gates(&task)?.into_iter().find(Gate::asks)
        };
        let gate = gate.ok_or_else(none)?;
        let task = work.tx.task(&gate.task)?.ok_or_else(none)?;
        Ok((gate, task))
    }
}
