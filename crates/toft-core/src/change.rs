//! Changes: the only way to modify rows, each with one event.
//!
//! A [`Change`] consists of its event and the rows to write ([`Write`]). Stores write the rows unchanged and apply no
//! rules.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agent::Agent,
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskState, Template, Workflow},
    gate::Gate,
    id::{OpId, TaskId, WorkflowId},
    landing::{Landing, Verdict},
    lease::Lease,
    message::{Delivery, Message},
    repository::{Place, Repository, Worktree},
    schema::JsonSchema,
    time::Timestamp,
    token::Token,
    workspace::Workspace,
};

/// One event and the rows that it writes.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub event: Event,
    /// The rows to write.
    pub writes: Vec<Write>,
}

/// One entry of the event log. Numbers have no gaps and follow the order of commits within a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number in the log; assigned by the store when the change is applied.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The agent that caused it; `toft` for changes without a caller, such as an expiry.
    pub actor: String,
    /// Where it happened.
    pub place: Place,
    /// The id of the entity that it is about.
    pub entity: String,
    /// What happened to it.
    pub verb: String,
    /// Details of the event.
    pub detail: Value,
    /// The operation it belongs to.
    pub op: OpId,
    /// Its position among the events of that operation, from 0.
    pub part: u32,
}

/// Writes or deletes one row.
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
    /// Deletes a dependency.
    DropDependency(Dependency),
    /// A new lease; the task must not have one.
    Lease(Lease),
    /// The same lease, renewed or examined.
    RenewLease(Lease),
    /// Deletes the lease of a task.
    DropLease(TaskId),
    /// An attempt that was started or ended.
    Attempt(Attempt),
    /// A checkpoint.
    Checkpoint(Checkpoint),
    /// A value under a key of a task.
    State(TaskId, String, Value),
    /// An agent.
    Agent(Agent),
    /// A message.
    Message(Message),
    /// The delivery of a message to one recipient.
    Delivery(Delivery),
    /// A gate.
    Gate(Gate),
    /// A workspace.
    Workspace(Workspace),
    /// A landing.
    Landing(Landing),
    /// The result of checks on a tree.
    Verdict(Verdict),
    /// A token.
    Token(Token),
    /// A version of a template.
    Template(Template),
    /// A queue entry; at most one for each task.
    Queue(QueueEntry),
    /// Deletes the queue entry of a task.
    DropQueue(TaskId),
    /// The answer to an operation, in case it is repeated.
    Receipt(Receipt),
}

/// A queue entry: derived from the task by [`crate::ready`], and stored so that reading the queue is one range scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    pub task: TaskId,
    pub lane: String,
    /// Its rank; lower ranks first.
    pub rank: String,
    /// The task's workflow.
    pub workflow: WorkflowId,
    /// The task's worktree.
    pub worktree: Option<String>,
    /// The task's labels, sorted, without duplicates.
    pub labels: Vec<String>,
}

/// The recorded answer to an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// The operation.
    pub op: OpId,
    /// The agent that made the request.
    pub actor: String,
    pub verb: String,
    /// A digest of the request; empty if the caller sent none.
    pub request: String,
    pub outcome: Value,
    /// When it was recorded.
    pub at: Timestamp,
}
