//! The memory store: the plainest thing that keeps what it is told. Other stores are compared with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use super::now_at;
use crate::{
    agent::Agent,
    change::{Change, Event, QueueEntry, Receipt, Write},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskStatus, Template, Workflow},
    gate::Gate,
    id::{AgentId, CheckpointId, GateId, MessageId, OpId, RepositoryId, TaskId, WorkflowId},
    lease::Lease,
    message::{Delivery, DeliveryState, Letter, Message},
    repository::{Repository, Scope, Worktree},
    store::{Access, EventQuery, LeasesOf, Result, Store, StoreError, StoreTx, TaskQuery, WorkflowQuery},
    time::{Now, Tick, millis},
};

/// A clock that moves only when told to.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// What it says.
    pub fn now(&self) -> Now {
        now_at(self.0.load(Ordering::SeqCst))
    }

    /// Moves it.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(millis(span), Ordering::SeqCst);
    }
}

/// Everything in memory, one transaction at a time.
pub struct MemoryStore {
    tables: Mutex<Tables>,
    clock: ManualClock,
    commits: AtomicU64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: ManualClock) -> Self {
        Self { tables: Mutex::default(), clock, commits: AtomicU64::new(0) }
    }
}

#[derive(Clone, Default)]
struct Tables {
    repositories: BTreeMap<RepositoryId, Repository>,
    worktrees: BTreeMap<(RepositoryId, String), Worktree>,
    workflows: BTreeMap<WorkflowId, Workflow>,
    tasks: BTreeMap<TaskId, Task>,
    dependencies: BTreeSet<Dependency>,
    leases: BTreeMap<TaskId, Lease>,
    attempts: BTreeMap<(TaskId, u64), Attempt>,
    checkpoints: BTreeMap<CheckpointId, Checkpoint>,
    states: BTreeMap<(TaskId, String), Value>,
    agents: BTreeMap<AgentId, Agent>,
    messages: BTreeMap<MessageId, Message>,
    deliveries: BTreeMap<(String, MessageId), Delivery>,
    gates: Vec<Gate>,
    templates: BTreeMap<(String, u32), Template>,
    queue: BTreeMap<TaskId, QueueEntry>,
    receipts: BTreeMap<OpId, Receipt>,
    events: Vec<Event>,
}

impl Store for MemoryStore {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        let shared = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = shared.clone();
        Ok(Box::new(MemoryTx { shared, tables, access, clock: &self.clock, commits: &self.commits }))
    }

    fn pulse(&self) -> Result<u64> {
        Ok(self.commits.load(Ordering::SeqCst))
    }
}

struct MemoryTx<'a> {
    shared: MutexGuard<'a, Tables>,
    tables: Tables,
    access: Access,
    clock: &'a ManualClock,
    commits: &'a AtomicU64,
}

fn limited<T>(rows: impl Iterator<Item = T>, limit: usize) -> Vec<T> {
    rows.take(if limit == 0 { usize::MAX } else { limit }).collect()
}

impl MemoryTx<'_> {
    fn write(&mut self, write: &Write) -> Result<()> {
        if self.access == Access::Read {
            return Err(StoreError::Failed { doing: "write".into(), cause: "the transaction only reads".into() });
        }
        let t = &mut self.tables;
        match write.clone() {
            Write::Repository(row) => drop(t.repositories.insert(row.id.clone(), row)),
            Write::Worktree(row) => drop(t.worktrees.insert((row.repository.clone(), row.name.clone()), row)),
            Write::Workflow(row) => drop(t.workflows.insert(row.id.clone(), row)),
            Write::Task(row) => drop(t.tasks.insert(row.id.clone(), row)),
            Write::TaskState(id, state) => {
                if let Some(task) = t.tasks.get_mut(&id) {
                    task.state = state;
                }
            }
            Write::Dependency(row) => drop(t.dependencies.insert(row)),
            Write::DropDependency(row) => drop(t.dependencies.remove(&row)),
            Write::Lease(row) => {
                if t.leases.contains_key(&row.task) {
                    return Err(StoreError::Failed { doing: "lease".into(), cause: format!("{} is leased", row.task) });
                }
                t.leases.insert(row.task.clone(), row);
            }
            Write::RenewLease(row) => {
                if let Some(known) = t.leases.get_mut(&row.task).filter(|known| known.fence == row.fence) {
                    *known = row;
                }
            }
            Write::DropLease(id) => drop(t.leases.remove(&id)),
            Write::Attempt(row) => drop(t.attempts.insert((row.task.clone(), row.fence), row)),
            Write::Checkpoint(row) => drop(t.checkpoints.insert(row.id.clone(), row)),
            Write::State(task, key, value) => drop(t.states.insert((task, key), value)),
            Write::Agent(row) => {
                if t.agents.values().any(|known| known.name == row.name && known.id != row.id) {
                    return Err(StoreError::Failed {
                        doing: "name an agent".into(),
                        cause: "the name is taken".into(),
                    });
                }
                t.agents.insert(row.id.clone(), row);
            }
            Write::Message(row) => drop(t.messages.insert(row.id.clone(), row)),
            Write::Delivery(row) => {
                drop(t.deliveries.insert((row.recipient.clone(), row.message.clone()), row));
            }
            Write::Gate(row) => match t.gates.iter_mut().find(|gate| gate.id == row.id) {
                Some(known) => *known = row,
                None => t.gates.push(row),
            },
            Write::Template(row) => drop(t.templates.insert((row.name.clone(), row.version), row)),
            Write::Queue(row) => drop(t.queue.insert(row.task.clone(), row)),
            Write::DropQueue(id) => drop(t.queue.remove(&id)),
            Write::Receipt(row) => {
                if t.receipts.contains_key(&row.op) {
                    return Err(StoreError::Failed { doing: "answer".into(), cause: "it was answered before".into() });
                }
                t.receipts.insert(row.op.clone(), row);
            }
        }
        Ok(())
    }
}

impl StoreTx for MemoryTx<'_> {
    fn now(&mut self) -> Result<Now> {
        Ok(self.clock.now())
    }

    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>> {
        Ok(self.tables.receipts.get(op).cloned())
    }

    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let t = &self.tables;
        let mut ids: Vec<String> = t
            .tasks
            .keys()
            .map(ToString::to_string)
            .chain(t.workflows.keys().map(ToString::to_string))
            .chain(t.agents.keys().map(ToString::to_string))
            .chain(t.gates.iter().map(|gate| gate.id.to_string()))
            .filter(|id| id.starts_with(prefix))
            .collect();
        ids.sort();
        ids.truncate(limit);
        Ok(ids)
    }

    fn repositories(&mut self) -> Result<Vec<Repository>> {
        Ok(self.tables.repositories.values().cloned().collect())
    }

    fn worktrees(&mut self, repository: &RepositoryId) -> Result<Vec<Worktree>> {
        Ok(self.tables.worktrees.values().filter(|row| row.repository == *repository).cloned().collect())
    }

    fn workflow(&mut self, id: &WorkflowId) -> Result<Option<Workflow>> {
        Ok(self.tables.workflows.get(id).cloned())
    }

    fn workflows(&mut self, query: &WorkflowQuery) -> Result<Vec<Workflow>> {
        let mut rows: Vec<_> = self
            .tables
            .workflows
            .values()
            .filter(|row| query.scope.covers(&row.place))
            .filter(|row| query.statuses.is_empty() || query.statuses.contains(&row.status))
            .cloned()
            .collect();
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        Ok(limited(rows.into_iter(), query.limit))
    }

    fn progress(&mut self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>> {
        let mut counts = BTreeMap::new();
        for task in self.tables.tasks.values().filter(|task| task.workflow == *workflow) {
            *counts.entry(task.state.status).or_default() += 1;
        }
        Ok(counts.into_iter().collect())
    }

    fn has_unblocked(&mut self, workflow: &WorkflowId) -> Result<bool> {
        Ok(self.tables.tasks.values().any(|task| {
            task.workflow == *workflow && task.state.status == TaskStatus::Pending && task.state.open_blockers == 0
        }))
    }

    fn task(&mut self, id: &TaskId) -> Result<Option<Task>> {
        Ok(self.tables.tasks.get(id).cloned())
    }

    fn tasks(&mut self, query: &TaskQuery) -> Result<Vec<Task>> {
        let mut rows: Vec<_> = self
            .tables
            .tasks
            .values()
            .filter(|task| query.workflow.as_ref().is_none_or(|id| task.workflow == *id))
            .filter(|task| query.scope.covers(&task.place))
            .filter(|task| query.statuses.is_empty() || query.statuses.contains(&task.state.status))
            .cloned()
            .collect();
        if query.workflow.is_some() {
            rows.sort_by(|a, b| (a.order, &a.id).cmp(&(b.order, &b.id)));
        } else {
            rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        }
        Ok(limited(rows.into_iter(), query.limit))
    }

    fn dependencies(&mut self, task: &TaskId) -> Result<Vec<(Dependency, Option<TaskStatus>)>> {
        let status = |id: &TaskId| self.tables.tasks.get(id).map(|task| task.state.status);
        Ok(self
            .tables
            .dependencies
            .iter()
            .filter(|row| row.task == *task)
            .map(|row| (row.clone(), status(&row.on)))
            .collect())
    }

    fn dependents(&mut self, on: &TaskId) -> Result<Vec<Dependency>> {
        Ok(self.tables.dependencies.iter().filter(|row| row.on == *on).cloned().collect())
    }

    fn lease(&mut self, task: &TaskId) -> Result<Option<Lease>> {
        Ok(self.tables.leases.get(task).cloned())
    }

    fn leases(&mut self, of: &LeasesOf) -> Result<Vec<Lease>> {
        let fits = |lease: &&Lease| match of {
            LeasesOf::Agent(id) => lease.agent == *id,
            LeasesOf::Workflow(id) => lease.workflow == *id,
            LeasesOf::Repository(None) => true,
            LeasesOf::Repository(id) => lease.repository == *id,
        };
        Ok(self.tables.leases.values().filter(fits).cloned().collect())
    }

    fn overdue(&mut self, tick: &Tick, host: Option<&str>, limit: usize) -> Result<Vec<Lease>> {
        let local = |lease: &Lease| lease.holder.as_ref().is_some_and(|holder| Some(holder.host.as_str()) == host);
        let due = |lease: &&Lease| lease.renewed_tick.epoch != tick.epoch || lease.check_at <= tick.ms || local(lease);
        let mut rows: Vec<_> = self.tables.leases.values().filter(due).cloned().collect();
        rows.sort_by(|a, b| (a.check_at, &a.task).cmp(&(b.check_at, &b.task)));
        Ok(limited(rows.into_iter(), limit))
    }

    fn attempts(&mut self, task: &TaskId) -> Result<Vec<Attempt>> {
        Ok(self.tables.attempts.values().filter(|row| row.task == *task).cloned().collect())
    }

    fn checkpoints(&mut self, task: &TaskId, limit: usize) -> Result<Vec<Checkpoint>> {
        let mut rows: Vec<_> = self.tables.checkpoints.values().filter(|row| row.task == *task).cloned().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.seq));
        Ok(limited(rows.into_iter(), limit))
    }

    fn state(&mut self, task: &TaskId, key: &str) -> Result<Option<Value>> {
        Ok(self.tables.states.get(&(task.clone(), key.to_owned())).cloned())
    }

    fn states(&mut self, task: &TaskId) -> Result<Vec<(String, Value)>> {
        let mine = self.tables.states.iter().filter(|((id, _), _)| id == task);
        Ok(mine.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    fn agent(&mut self, id: &AgentId) -> Result<Option<Agent>> {
        Ok(self.tables.agents.get(id).cloned())
    }

    fn agent_named(&mut self, name: &str) -> Result<Option<Agent>> {
        Ok(self.tables.agents.values().find(|agent| agent.name == name).cloned())
    }

    fn agents(&mut self) -> Result<Vec<Agent>> {
        let mut rows: Vec<_> = self.tables.agents.values().cloned().collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }

    fn message(&mut self, id: &MessageId) -> Result<Option<Message>> {
        Ok(self.tables.messages.get(id).cloned())
    }

    fn inbox(&mut self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<Letter>> {
        let mut mine: Vec<_> = self
            .tables
            .deliveries
            .values()
            .filter(|row| row.recipient == recipient && (!unread_only || row.state == DeliveryState::Queued))
            .collect();
        mine.sort_by(|a, b| a.rank.cmp(&b.rank));
        let letters = mine.into_iter().filter_map(|delivery| {
            let message = self.tables.messages.get(&delivery.message)?.clone();
            let from = self.tables.agents.get(&message.from);
            let from_name = from.map_or_else(|| message.from.to_string(), |agent| agent.name.clone());
            Some(Letter { message, from_name, state: delivery.state })
        });
        Ok(limited(letters, limit))
    }

    fn gates(&mut self, task: &TaskId) -> Result<Vec<Gate>> {
        let mut rows: Vec<_> = self.tables.gates.iter().filter(|row| row.task == *task).cloned().collect();
        rows.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(rows)
    }

    fn gate(&mut self, id: &GateId) -> Result<Option<Gate>> {
        Ok(self.tables.gates.iter().find(|gate| gate.id == *id).cloned())
    }

    fn unopened_gates(&mut self, scope: &Scope, limit: usize) -> Result<Vec<Gate>> {
        let mut rows: Vec<_> =
            self.tables.gates.iter().filter(|row| row.asks() && scope.covers(&row.place)).cloned().collect();
        rows.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(limited(rows.into_iter(), limit))
    }

    fn template(&mut self, name: &str, version: Option<u32>) -> Result<Option<Template>> {
        let mut named = self.tables.templates.values().filter(|row| row.name == name);
        Ok(match version {
            Some(version) => named.find(|row| row.version == version).cloned(),
            None => named.next_back().cloned(),
        })
    }

    fn templates(&mut self) -> Result<Vec<Template>> {
        let newest: BTreeMap<_, _> = self.tables.templates.values().map(|row| (row.name.clone(), row)).collect();
        Ok(newest.into_values().cloned().collect())
    }

    fn open_lanes(&mut self, scope: &Scope) -> Result<Vec<Workflow>> {
        let fits = |row: &&Workflow| {
            row.lane_open() && scope.repository.as_ref().is_none_or(|id| row.repositories.contains(id))
        };
        Ok(self.tables.workflows.values().filter(fits).cloned().collect())
    }

    fn queued(&mut self, lane: &str, after: &str, upto: Option<&str>, limit: usize) -> Result<Vec<(QueueEntry, Task)>> {
        let mut rows: Vec<_> = self
            .tables
            .queue
            .values()
            .filter(|row| row.lane == lane && row.rank.as_str() > after)
            .filter(|row| upto.is_none_or(|upto| row.rank.as_str() < upto))
            .cloned()
            .collect();
        rows.sort_by(|a, b| a.rank.cmp(&b.rank));
        let tasks = &self.tables.tasks;
        Ok(limited(rows.into_iter().filter_map(|row| tasks.get(&row.task).cloned().map(|task| (row, task))), limit))
    }

    fn queue_entry(&mut self, task: &TaskId) -> Result<Option<QueueEntry>> {
        Ok(self.tables.queue.get(task).cloned())
    }

    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>> {
        let mut rows: Vec<_> = self
            .tables
            .events
            .iter()
            .filter(|row| row.seq > query.after)
            .filter(|row| query.entity.as_ref().is_none_or(|entity| row.entity == *entity))
            .filter(|row| query.scope.covers(&row.place))
            .cloned()
            .collect();
        if query.newest {
            let surplus = rows.len().saturating_sub(query.limit);
            rows.drain(..surplus);
        } else {
            rows.truncate(query.limit);
        }
        Ok(rows)
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        self.derive(&change.writes)?;
        let event = Event { seq: self.tables.events.len() as u64 + 1, ..change.event.clone() };
        self.tables.events.push(event);
        Ok(())
    }

    fn derive(&mut self, writes: &[Write]) -> Result<()> {
        writes.iter().try_for_each(|write| self.write(write))
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        if self.access == Access::Write {
            *self.shared = std::mem::take(&mut self.tables);
            self.commits.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}
