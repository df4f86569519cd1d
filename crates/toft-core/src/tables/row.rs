//! Rows by key: written, read and taken back.

use super::Tables;
use crate::{
    change::Write,
    flow::{Dependency, Task},
    id::{AgentId, CheckpointId, GateId, LandingId, MessageId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    store::{Result, StoreError},
};

/// The key of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKey {
    Repository(RepositoryId),
    Worktree(RepositoryId, String),
    Workflow(WorkflowId),
    Task(TaskId),
    /// The state of a task, which is a part of its row.
    TaskState(TaskId),
    Dependency(Dependency),
    Lease(TaskId),
    Attempt(TaskId, u64),
    Checkpoint(CheckpointId),
    State(TaskId, String),
    Agent(AgentId),
    Message(MessageId),
    Delivery(String, MessageId),
    Gate(GateId),
    Workspace(WorkspaceId),
    Landing(LandingId),
    Verdict(String),
    Token(String),
    Template(String, u32),
    Queue(TaskId),
    Receipt(OpId),
}

impl RowKey {
    /// The key of the row that is written or deleted.
    #[must_use]
    pub fn of(write: &Write) -> Self {
        match write {
            Write::Repository(row) => Self::Repository(row.id.clone()),
            Write::Worktree(row) => Self::Worktree(row.repository.clone(), row.name.clone()),
            Write::Workflow(row) => Self::Workflow(row.id.clone()),
            Write::Task(row) => Self::Task(row.id.clone()),
            Write::TaskState(id, _) => Self::TaskState(id.clone()),
            Write::Dependency(row) | Write::DropDependency(row) => Self::Dependency(row.clone()),
            Write::Lease(row) | Write::RenewLease(row) => Self::Lease(row.task.clone()),
            Write::DropLease(task) => Self::Lease(task.clone()),
            Write::Attempt(row) => Self::Attempt(row.task.clone(), row.fence),
            Write::Checkpoint(row) => Self::Checkpoint(row.id.clone()),
            Write::State(task, key, _) => Self::State(task.clone(), key.clone()),
            Write::Agent(row) => Self::Agent(row.id.clone()),
            Write::Message(row) => Self::Message(row.id.clone()),
            Write::Delivery(row) => Self::Delivery(row.recipient.clone(), row.message.clone()),
            Write::Gate(row) => Self::Gate(row.id.clone()),
            Write::Workspace(row) => Self::Workspace(row.id.clone()),
            Write::Landing(row) => Self::Landing(row.id.clone()),
            Write::Verdict(row) => Self::Verdict(row.key.clone()),
            Write::Token(row) => Self::Token(row.digest.clone()),
            Write::Template(row) => Self::Template(row.name.clone(), row.version),
            Write::Queue(row) => Self::Queue(row.task.clone()),
            Write::DropQueue(task) => Self::Queue(task.clone()),
            Write::Receipt(row) => Self::Receipt(row.op.clone()),
        }
    }
}

impl Tables {
    /// Writes or deletes a row.
    pub fn write(&mut self, write: &Write) -> Result<()> {
        let taken = |doing: &str, cause: String| Err(StoreError::Failed { doing: doing.into(), cause });
        match write {
            Write::Lease(row) if self.leases.contains_key(&row.task) => {
                return taken("lease", format!("{} is leased", row.task));
            }
            Write::Agent(row) if self.indexes.agent_named(&row.name).is_some_and(|known| *known != row.id) => {
                return taken("name an agent", "the name is taken".into());
            }
            Write::Receipt(row) if self.receipts.contains_key(&row.op) => {
                return taken("answer", "it was answered before".into());
            }
            Write::RenewLease(row) if self.leases.get(&row.task).is_none_or(|known| known.fence != row.fence) => {}
            Write::TaskState(id, _) if !self.tasks.contains_key(id) => {}
            Write::DropDependency(_) | Write::DropLease(_) | Write::DropQueue(_) => self.set(&RowKey::of(write), None),
            row => self.set(&RowKey::of(write), Some(row.clone())),
        }
        Ok(())
    }

    /// The row under a key as it would be written; the state of a task with its id.
    #[must_use]
    pub fn row(&self, key: &RowKey) -> Option<Write> {
        match key {
            RowKey::Repository(id) => self.repositories.get(id).cloned().map(Write::Repository),
            RowKey::Worktree(id, name) => self.worktrees.get(&(id.clone(), name.clone())).cloned().map(Write::Worktree),
            RowKey::Workflow(id) => self.workflows.get(id).cloned().map(Write::Workflow),
            RowKey::Task(id) => self.tasks.get(id).cloned().map(Write::Task),
            RowKey::TaskState(id) => self.tasks.get(id).map(|task| Write::TaskState(id.clone(), task.state.clone())),
            RowKey::Dependency(row) => self.dependencies.get(row).cloned().map(Write::Dependency),
            RowKey::Lease(task) => self.leases.get(task).cloned().map(Write::Lease),
            RowKey::Attempt(task, fence) => self.attempts.get(&(task.clone(), *fence)).cloned().map(Write::Attempt),
            RowKey::Checkpoint(id) => self.checkpoints.get(id).cloned().map(Write::Checkpoint),
            RowKey::State(task, key) => {
                let value = self.states.get(&(task.clone(), key.clone())).cloned();
                value.map(|value| Write::State(task.clone(), key.clone(), value))
            }
            RowKey::Agent(id) => self.agents.get(id).cloned().map(Write::Agent),
            RowKey::Message(id) => self.messages.get(id).cloned().map(Write::Message),
            RowKey::Delivery(recipient, message) => {
                self.deliveries.get(&(recipient.clone(), message.clone())).cloned().map(Write::Delivery)
            }
            RowKey::Gate(id) => self.gates.get(id).cloned().map(Write::Gate),
            RowKey::Workspace(id) => self.workspaces.get(id).cloned().map(Write::Workspace),
            RowKey::Landing(id) => self.landings.get(id).cloned().map(Write::Landing),
            RowKey::Verdict(key) => self.verdicts.get(key).cloned().map(Write::Verdict),
            RowKey::Token(digest) => self.tokens.get(digest).cloned().map(Write::Token),
            RowKey::Template(name, version) => {
                self.templates.get(&(name.clone(), *version)).cloned().map(Write::Template)
            }
            RowKey::Queue(task) => self.queue.get(task).cloned().map(Write::Queue),
            RowKey::Receipt(op) => self.receipts.get(op).cloned().map(Write::Receipt),
        }
    }

    /// Puts a row under its key, or removes it, whatever was there.
    pub fn set(&mut self, key: &RowKey, row: Option<Write>) {
        match (key, row) {
            (_, Some(row)) => self.put(row),
            (RowKey::Repository(id), None) => drop(self.repositories.remove(id)),
            (RowKey::Worktree(id, name), None) => drop(self.worktrees.remove(&(id.clone(), name.clone()))),
            (RowKey::Workflow(id), None) => {
                let old = self.workflows.remove(id);
                self.indexes.workflow(old.as_ref(), None);
            }
            (RowKey::Task(id), None) => {
                let old = self.tasks.remove(id);
                self.indexes.task(old.as_ref(), None);
            }
            // It goes with its task.
            (RowKey::TaskState(_), None) => {}
            (RowKey::Dependency(row), None) => {
                self.dependencies.remove(row);
                self.indexes.dependency(row, false);
            }
            (RowKey::Lease(task), None) => drop(self.leases.remove(task)),
            (RowKey::Attempt(task, fence), None) => drop(self.attempts.remove(&(task.clone(), *fence))),
            (RowKey::Checkpoint(id), None) => {
                let old = self.checkpoints.remove(id);
                self.indexes.checkpoint(old.as_ref(), None);
            }
            (RowKey::State(task, key), None) => drop(self.states.remove(&(task.clone(), key.clone()))),
            (RowKey::Agent(id), None) => {
                let old = self.agents.remove(id);
                self.indexes.agent(old.as_ref(), None);
            }
            (RowKey::Message(id), None) => drop(self.messages.remove(id)),
            (RowKey::Delivery(recipient, message), None) => {
                drop(self.deliveries.remove(&(recipient.clone(), message.clone())));
            }
            (RowKey::Gate(id), None) => {
                let old = self.gates.remove(id);
                self.indexes.gate(old.as_ref(), None);
            }
            (RowKey::Workspace(id), None) => drop(self.workspaces.remove(id)),
            (RowKey::Landing(id), None) => drop(self.landings.remove(id)),
            (RowKey::Verdict(key), None) => drop(self.verdicts.remove(key)),
            (RowKey::Token(digest), None) => drop(self.tokens.remove(digest)),
            (RowKey::Template(name, version), None) => drop(self.templates.remove(&(name.clone(), *version))),
            (RowKey::Queue(task), None) => {
                let old = self.queue.remove(task);
                self.indexes.queue(old.as_ref(), None);
            }
            (RowKey::Receipt(op), None) => drop(self.receipts.remove(op)),
        }
    }

    fn put(&mut self, row: Write) {
        match row {
            Write::Repository(row) => drop(self.repositories.insert(row.id.clone(), row)),
            Write::Worktree(row) => drop(self.worktrees.insert((row.repository.clone(), row.name.clone()), row)),
            Write::Workflow(row) => {
                self.indexes.workflow(self.workflows.get(&row.id), Some(&row));
                self.workflows.insert(row.id.clone(), row);
            }
            Write::Task(row) => self.put_task(row),
            Write::TaskState(id, state) => {
                if let Some(task) = self.tasks.get(&id) {
                    let task = Task { state, ..task.clone() };
                    self.put_task(task);
                }
            }
            Write::Dependency(row) => {
                self.indexes.dependency(&row, true);
                self.dependencies.insert(row);
            }
            Write::Lease(row) | Write::RenewLease(row) => drop(self.leases.insert(row.task.clone(), row)),
            Write::Attempt(row) => drop(self.attempts.insert((row.task.clone(), row.fence), row)),
            Write::Checkpoint(row) => {
                self.indexes.checkpoint(self.checkpoints.get(&row.id), Some(&row));
                self.checkpoints.insert(row.id.clone(), row);
            }
            Write::State(task, key, value) => drop(self.states.insert((task, key), value)),
            Write::Agent(row) => {
                self.indexes.agent(self.agents.get(&row.id), Some(&row));
                self.agents.insert(row.id.clone(), row);
            }
            Write::Message(row) => drop(self.messages.insert(row.id.clone(), row)),
            Write::Delivery(row) => {
                drop(self.deliveries.insert((row.recipient.clone(), row.message.clone()), row));
            }
            Write::Gate(row) => {
                self.indexes.gate(self.gates.get(&row.id), Some(&row));
                self.gates.insert(row.id.clone(), row);
            }
            Write::Workspace(row) => drop(self.workspaces.insert(row.id.clone(), row)),
            Write::Landing(row) => drop(self.landings.insert(row.id.clone(), row)),
            Write::Verdict(row) => drop(self.verdicts.insert(row.key.clone(), row)),
            Write::Token(row) => drop(self.tokens.insert(row.digest.clone(), row)),
            Write::Template(row) => drop(self.templates.insert((row.name.clone(), row.version), row)),
            Write::Queue(row) => {
                self.indexes.queue(self.queue.get(&row.task), Some(&row));
                self.queue.insert(row.task.clone(), row);
            }
            Write::Receipt(row) => drop(self.receipts.insert(row.op.clone(), row)),
            // These delete.
            Write::DropDependency(_) | Write::DropLease(_) | Write::DropQueue(_) => {}
        }
    }

    fn put_task(&mut self, row: Task) {
        self.indexes.task(self.tasks.get(&row.id), Some(&row));
        self.tasks.insert(row.id.clone(), row);
    }
}
