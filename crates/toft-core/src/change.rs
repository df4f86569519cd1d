//! Changes: the only way anything is mutated, one event each.
//!
//! A [`Change`] says what happened (its event) and which rows that leaves behind (its [`Write`]s).
//! Stores put the rows down as they are; no store decides anything.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agent::Agent,
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskState, Template, Workflow},
    gate::Gate,
    id::{OpId, TaskId, WorkflowId},
    lease::Lease,
    message::{Delivery, Message},
    repository::{Place, Repository, Worktree},
    time::Timestamp,
    workspace::Workspace,
};

/// One line of history and the rows it leaves behind.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub event: Event,
    /// What is now so.
    pub writes: Vec<Write>,
}

/// One line of history. Gapless and in commit order within a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its place in history; given by the store when it is applied.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Whose doing; `toft` for what nobody asked for, such as an expiry.
    pub actor: String,
    /// Where it was done.
    pub place: Place,
    /// What it is about, by id.
    pub entity: String,
    /// What happened to it.
    pub verb: String,
    /// The particulars.
    pub detail: Value,
    /// The operation it belongs to.
    pub op: OpId,
    /// Which event of that operation: 0 for the first.
    pub part: u32,
}

/// One row put down whole, or taken away.
#[derive(Clone, Debug)]
pub enum Write {
    /// A repository.
    Repository(Repository),
    /// A worktree.
    Worktree(Worktree),
    /// A workflow.
    Workflow(Workflow),
    /// A task with its state.
    Task(Task),
    /// Only the state of a task that exists.
    TaskState(TaskId, TaskState),
    /// A dependency.
    Dependency(Dependency),
    /// No longer a dependency.
    DropDependency(Dependency),
    /// A new lease; the task must have none.
    Lease(Lease),
    /// The same lease, renewed or examined.
    RenewLease(Lease),
    /// The task's lease is over.
    DropLease(TaskId),
    /// An attempt, begun or ended.
    Attempt(Attempt),
    /// A checkpoint.
    Checkpoint(Checkpoint),
    /// A value under a key of a task.
    State(TaskId, String, Value),
    /// An agent.
    Agent(Agent),
    /// A message.
    Message(Message),
    /// A message in an inbox.
    Delivery(Delivery),
    /// A gate.
    Gate(Gate),
    /// A workspace.
    Workspace(Workspace),
    /// A version of a template.
    Template(Template),
    /// A place in the queue; at most one for each item.
    Queue(QueueEntry),
    /// No place in the queue.
    DropQueue(TaskId),
    /// What an operation answered, for whoever repeats it.
    Receipt(Receipt),
}

/// A place in the queue: derived from the task by [`crate::ready`], stored so that reading is one range scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Who queues.
    pub task: TaskId,
    /// In which lane.
    pub lane: String,
    /// Lower goes first.
    pub rank: String,
    /// The task's workflow.
    pub workflow: WorkflowId,
    /// The task's worktree.
    pub worktree: Option<String>,
    /// The task's labels, sorted, each once.
    pub labels: Vec<String>,
}

/// What an operation answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// The operation.
    pub op: OpId,
    /// Who asked.
    pub actor: String,
    /// Its verb.
    pub verb: String,
    /// A digest of what was asked; empty in receipts of older versions.
    pub request: String,
    /// Its outcome.
    pub outcome: Value,
    /// When.
    pub at: Timestamp,
}
