//! The memory store: the simplest implementation of a store. Other stores are compared with it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
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
    id::{AgentId, GateId, LandingId, MessageId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    landing::{Landing, Verdict},
    lease::Lease,
    message::{InboxItem, Message},
    repository::{Repository, Scope, Worktree},
    retention::RetentionKind,
    store::{
        Access, EventQuery, LandingQuery, LeasesOf, QueueScan, Result, Store, StoreError, StoreTx, TaskQuery,
        WorkflowQuery, WorkspaceQuery,
    },
    tables::Tables,
    time::{Now, Timestamp, millis},
    token::Token,
    workspace::Workspace,
};

/// A clock that moves only on request.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Now>>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(now_at(0))))
    }
}

impl ManualClock {
    /// The current time.
    pub fn now(&self) -> Now {
        self.lock().clone()
    }

    /// Advances both clocks.
    pub fn advance(&self, span: Duration) {
        let mut now = self.lock();
        now.wall = now.wall.plus(span);
        now.tick.ms += millis(span);
    }

    /// Sets both clocks, as if another machine asked.
    pub fn set(&self, now: Now) {
        *self.lock() = now;
    }

    /// Steps the wall clock by this many milliseconds; the monotonic clock does not move.
    pub fn step_wall(&self, ms: i64) {
        self.lock().wall.0 += ms;
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All rows in memory, one transaction at a time.
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

impl Store for MemoryStore {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        let shared = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = shared.clone();
        Ok(Box::new(MemoryTx { shared, tables, access, clock: &self.clock, commits: &self.commits }))
    }

    fn change_counter(&self) -> Result<u64> {
        Ok(self.commits.load(Ordering::SeqCst))
    }

    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize> {
        Ok(self.tables.lock().unwrap_or_else(PoisonError::into_inner).forget(
            what,
            before,
            self.clock.now().wall,
            limit,
        ))
    }
}

struct MemoryTx<'a> {
    shared: MutexGuard<'a, Tables>,
    tables: Tables,
    access: Access,
    clock: &'a ManualClock,
    commits: &'a AtomicU64,
}

/// Forwards each query to the tables.
macro_rules! as_the_tables_do {
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(
            fn $name(&mut self $(, $arg: $type)*) -> $answer {
                self.tables.$name($($arg),*)
            }
        )*
    };
}

impl StoreTx for MemoryTx<'_> {
    as_the_tables_do! {
        fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>>;
        fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>>;
        fn repositories(&mut self) -> Result<Vec<Repository>>;
        fn worktrees(&mut self, repository: &RepositoryId) -> Result<Vec<Worktree>>;
        fn workflow(&mut self, id: &WorkflowId) -> Result<Option<Workflow>>;
        fn workflows(&mut self, query: &WorkflowQuery) -> Result<Vec<Workflow>>;
        fn workflow_of_issue(&mut self, issue: &str) -> Result<Option<Workflow>>;
        fn ledger_pending(&mut self, repository: Option<&RepositoryId>, limit: usize) -> Result<Vec<Workflow>>;
        fn progress(&mut self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>>;
        fn has_unblocked(&mut self, workflow: &WorkflowId) -> Result<bool>;
        fn task(&mut self, id: &TaskId) -> Result<Option<Task>>;
        fn tasks(&mut self, query: &TaskQuery) -> Result<Vec<Task>>;
        fn dependencies(&mut self, task: &TaskId) -> Result<Vec<(Dependency, Option<TaskStatus>)>>;
        fn dependents(&mut self, on: &TaskId) -> Result<Vec<Dependency>>;
        fn lease(&mut self, task: &TaskId) -> Result<Option<Lease>>;
        fn leases(&mut self, of: &LeasesOf) -> Result<Vec<Lease>>;
        fn newest_event_at(&mut self) -> Result<Option<Timestamp>>;
        fn overdue(&mut self, wall: Timestamp, host: Option<&str>, limit: usize) -> Result<Vec<Lease>>;
        fn attempts(&mut self, task: &TaskId) -> Result<Vec<Attempt>>;
        fn checkpoints(&mut self, task: &TaskId, limit: usize) -> Result<Vec<Checkpoint>>;
        fn state(&mut self, task: &TaskId, key: &str) -> Result<Option<Value>>;
        fn states(&mut self, task: &TaskId) -> Result<Vec<(String, Value)>>;
        fn agent(&mut self, id: &AgentId) -> Result<Option<Agent>>;
        fn agent_named(&mut self, name: &str) -> Result<Option<Agent>>;
        fn agents(&mut self) -> Result<Vec<Agent>>;
        fn message(&mut self, id: &MessageId) -> Result<Option<Message>>;
        fn inbox(&mut self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<InboxItem>>;
        fn gates(&mut self, task: &TaskId) -> Result<Vec<Gate>>;
        fn gate(&mut self, id: &GateId) -> Result<Option<Gate>>;
        fn unopened_gates(&mut self, scope: &Scope, limit: usize) -> Result<Vec<Gate>>;
        fn workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>>;
        fn workspaces(&mut self, query: &WorkspaceQuery) -> Result<Vec<Workspace>>;
        fn landing(&mut self, id: &LandingId) -> Result<Option<Landing>>;
        fn landings(&mut self, query: &LandingQuery) -> Result<Vec<Landing>>;
        fn verdict(&mut self, key: &str) -> Result<Option<Verdict>>;
        fn flaky_verdicts(&mut self, repository: &RepositoryId) -> Result<Vec<Verdict>>;
        fn token(&mut self, digest: &str) -> Result<Option<Token>>;
        fn tokens(&mut self) -> Result<Vec<Token>>;
        fn template(&mut self, name: &str, version: Option<u32>) -> Result<Option<Template>>;
        fn templates(&mut self) -> Result<Vec<Template>>;
        fn open_lanes(&mut self, scope: &Scope) -> Result<Vec<Workflow>>;
        fn queued(&mut self, scan: &QueueScan<'_>) -> Result<Vec<(QueueEntry, Task)>>;
        fn lanes(&mut self, prefixes: &[String], limit: usize) -> Result<Vec<String>>;
        fn queue_entry(&mut self, task: &TaskId) -> Result<Option<QueueEntry>>;
        fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>>;
    }

    fn now(&mut self) -> Result<Now> {
        Ok(self.clock.now())
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        self.write_derived(&change.writes)?;
        let newest = self.tables.events.last().map_or(0, |event| event.seq);
        let event = Event { seq: newest + 1, ..change.event.clone() };
        self.tables.events.push(event);
        Ok(())
    }

    fn write_derived(&mut self, writes: &[Write]) -> Result<()> {
        if self.access == Access::Read {
            return Err(StoreError::Failed { doing: "write".into(), cause: "the transaction only reads".into() });
        }
        writes.iter().try_for_each(|write| self.tables.write(write))
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        if self.access == Access::Write {
            *self.shared = std::mem::take(&mut self.tables);
            self.commits.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}
