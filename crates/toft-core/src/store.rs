//! What a store must answer and put down: facts, not rules.
//!
//! Every engine passes the same conformance suite; the memory store in [`crate::testing`] is the definition.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    agent::Agent,
    change::{Change, Event, QueueEntry, Receipt, Write},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskStatus, Template, Workflow, WorkflowStatus},
    gate::Gate,
    id::{AgentId, GateId, MessageId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    lease::Lease,
    message::{InboxItem, Message},
    repository::{Repository, Scope, Worktree},
    retention::RetentionKind,
    time::{Now, Timestamp},
    workspace::Workspace,
};

/// Shorthand for what a store answers.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Where facts are kept.
pub trait Store: Send + Sync {
    /// Opens a transaction. Those that write take effect one after the other, each on the newest state.
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>>;

    /// A number that moves whenever another connection commits; lets a waiter look cheaply.
    fn change_counter(&self) -> Result<u64>;

    /// How long a waiter goes without looking when nothing moves: leases and timers end without a commit.
    fn look_again_after(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Forgets up to `limit` rows of a kind that are older than `before`, in a transaction of its own; says how many.
    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize>;
}

/// Reads in a transaction of its own, again if that could not be finished.
pub fn ask<T>(store: &dyn Store, question: impl Fn(&mut dyn StoreTx) -> Result<T>) -> Result<T> {
    loop {
        match store.begin(Access::Read).and_then(|mut tx| question(tx.as_mut())) {
            Err(StoreError::Conflict) => {}
            answered => return answered,
        }
    }
}

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading: one consistent view, nothing is written.
    Read,
    /// Writing.
    Write,
}

/// What a verb is about to ask, so that a store far away can answer in one journey. Only a hint.
#[derive(Clone, Debug)]
pub enum Prefetch<'a> {
    /// Nothing in particular.
    Unknown,
    /// Who asks, and the best tasks in scope.
    Claim {
        /// The agent's name.
        actor: &'a str,
        /// From where.
        scope: &'a Scope,
        /// The head of the queue: under which key, and how many entries. Absent when the claim will read more than it takes.
        head: Option<(QueueKey, usize)>,
        /// How many leases are looked at first.
        leases: usize,
        /// How many timers are looked at first.
        timers: usize,
    },
    /// One task that is held, and what hangs on it.
    Hold {
        /// Its whole id.
        task: &'a str,
    },
}

/// One transaction. Dropped without [`StoreTx::commit`], nothing happened.
///
/// A store may let writers overlap and find out at the end that what one of them read has changed since: then
/// [`StoreTx::commit`] and [`StoreTx::validate_reads`] say [`StoreError::Conflict`], and the verb runs again.
pub trait StoreTx {
    /// What will be asked next.
    fn prefetch(&mut self, _ahead: Prefetch<'_>) -> Result<()> {
        Ok(())
    }
    /// Everything that was read was true at one moment.
    fn validate_reads(&mut self) -> Result<()> {
        Ok(())
    }
    /// The store's wall clock, and the monotonic clock of the machine that asks.
    fn now(&mut self) -> Result<Now>;
    /// What the wall said when the newest event was written.
    fn newest_event_at(&mut self) -> Result<Option<Timestamp>>;
    /// What this operation answered, if it ran before.
    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>>;
    /// Ids of any kind that start with `prefix`, in order.
    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>>;

    /// A workspace.
    fn workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>>;
    /// Workspaces, newest first.
    fn workspaces(&mut self, query: &WorkspaceQuery) -> Result<Vec<Workspace>>;

    /// Every repository, by id.
    fn repositories(&mut self) -> Result<Vec<Repository>>;
    /// A repository's worktrees, by name.
    fn worktrees(&mut self, repository: &RepositoryId) -> Result<Vec<Worktree>>;

    /// A workflow.
    fn workflow(&mut self, id: &WorkflowId) -> Result<Option<Workflow>>;
    /// Workflows, newest first.
    fn workflows(&mut self, query: &WorkflowQuery) -> Result<Vec<Workflow>>;
    /// The workflow that is on an issue now, if any.
    fn workflow_of_issue(&mut self, issue: &str) -> Result<Option<Workflow>>;
    /// Workflows of a repository, or of all, on issues whose ledger has to be told what is true of them now, up to `limit`.
    fn ledger_pending(&mut self, repository: Option<&RepositoryId>, limit: usize) -> Result<Vec<Workflow>>;
    /// How many tasks of a workflow have each status.
    fn progress(&mut self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>>;
    /// Is any pending task of the workflow without open blockers?
    fn has_unblocked(&mut self, workflow: &WorkflowId) -> Result<bool>;

    /// A task.
    fn task(&mut self, id: &TaskId) -> Result<Option<Task>>;
    /// Tasks: of one workflow in plan order, else newest first.
    fn tasks(&mut self, query: &TaskQuery) -> Result<Vec<Task>>;
    /// What a task depends on, with its target's status, by target.
    fn dependencies(&mut self, task: &TaskId) -> Result<Vec<(Dependency, Option<TaskStatus>)>>;
    /// What depends on a task, by dependent.
    fn dependents(&mut self, on: &TaskId) -> Result<Vec<Dependency>>;

    /// The lease on a task.
    fn lease(&mut self, task: &TaskId) -> Result<Option<Lease>>;
    /// Leases, by task.
    fn leases(&mut self, of: &LeasesOf) -> Result<Vec<Lease>>;
    /// Leases due for a look: past their `check_at`; with a host, also every lease that follows a process of that host.
    fn overdue(&mut self, wall: Timestamp, host: Option<&str>, limit: usize) -> Result<Vec<Lease>>;
    /// Attempts at a task, oldest first.
    fn attempts(&mut self, task: &TaskId) -> Result<Vec<Attempt>>;

    /// Checkpoints of a task, newest first.
    fn checkpoints(&mut self, task: &TaskId, limit: usize) -> Result<Vec<Checkpoint>>;
    /// The value under a key of a task.
    fn state(&mut self, task: &TaskId, key: &str) -> Result<Option<serde_json::Value>>;
    /// Every key of a task with its value, by key.
    fn states(&mut self, task: &TaskId) -> Result<Vec<(String, serde_json::Value)>>;

    /// An agent.
    fn agent(&mut self, id: &AgentId) -> Result<Option<Agent>>;
    /// The agent with this name.
    fn agent_named(&mut self, name: &str) -> Result<Option<Agent>>;
    /// Every agent, by name.
    fn agents(&mut self) -> Result<Vec<Agent>>;

    /// A message.
    fn message(&mut self, id: &MessageId) -> Result<Option<Message>>;
    /// Letters in an inbox: urgent first, then oldest first.
    fn inbox(&mut self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<InboxItem>>;
    /// Gates of a task, oldest first.
    fn gates(&mut self, task: &TaskId) -> Result<Vec<Gate>>;
    /// A gate.
    fn gate(&mut self, id: &GateId) -> Result<Option<Gate>>;
    /// Gates that wait for somebody to open them, oldest first.
    fn unopened_gates(&mut self, scope: &Scope, limit: usize) -> Result<Vec<Gate>>;
    /// A version of a template; the newest without one.
    fn template(&mut self, name: &str, version: Option<u32>) -> Result<Option<Template>>;
    /// The newest version of every template, by name.
    fn templates(&mut self) -> Result<Vec<Template>>;

    /// Limited workflows in scope that have room: each has a lane of its own.
    fn open_lanes(&mut self, scope: &Scope) -> Result<Vec<Workflow>>;
    /// Entries of the queue, with their tasks, in the order of rank.
    fn queued(&mut self, scan: &QueueScan<'_>) -> Result<Vec<(QueueEntry, Task)>>;
    /// Lanes that have entries and whose names start with one of `prefixes`, in order; up to `limit` for each prefix.
    fn lanes(&mut self, prefixes: &[String], limit: usize) -> Result<Vec<String>>;
    /// Where a task queues.
    fn queue_entry(&mut self, task: &TaskId) -> Result<Option<QueueEntry>>;

    /// Events after a cursor, oldest first.
    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>>;

    /// Appends the change's event and puts its rows down.
    fn apply(&mut self, change: &Change) -> Result<()>;
    /// Puts down rows that follow from others and are no news by themselves.
    fn write_derived(&mut self, writes: &[Write]) -> Result<()>;
    /// Makes it so, durably.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Which workflows.
#[derive(Clone, Debug, Default)]
pub struct WorkflowQuery {
    /// From where.
    pub scope: Scope,
    /// With one of these statuses; any when empty.
    pub statuses: Vec<WorkflowStatus>,
    /// At most so many; all when 0.
    pub limit: usize,
}

/// Which tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Of this workflow.
    pub workflow: Option<WorkflowId>,
    /// From where.
    pub scope: Scope,
    /// With one of these statuses; any when empty.
    pub statuses: Vec<TaskStatus>,
    /// At most so many; all when 0.
    pub limit: usize,
}

/// Which part of the queue to read. Its lanes are read as if they were one.
#[derive(Clone, Copy, Debug)]
pub struct QueueScan<'a> {
    /// Lanes to read.
    pub lanes: &'a [String],
    /// Only entries under this key.
    pub key: &'a QueueKey,
    /// Only entries of a higher rank.
    pub after: &'a str,
    /// Only entries of a lower rank.
    pub upto: Option<&'a str>,
    /// Maximum number of entries; all when 0.
    pub limit: usize,
    /// The caller takes every entry it is given, so a store may hide these entries from other claims.
    pub taking: bool,
}

/// What the queue is indexed by: a scan under any of these steps over no entry that it does not return.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueKey {
    /// Every entry.
    All,
    /// Tasks of a workflow.
    Workflow(WorkflowId),
    /// Tasks of a worktree.
    Worktree(String),
    /// Tasks with a label.
    Label(String),
}

/// Which workspaces.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceQuery {
    /// Of this repository; of every one when absent.
    pub repository: Option<RepositoryId>,
    /// Only those that are not gone.
    pub live: bool,
    /// At most so many; all when 0.
    pub limit: usize,
}

/// Which leases.
#[derive(Clone, Debug)]
pub enum LeasesOf {
    /// An agent's.
    Agent(AgentId),
    /// A workflow's.
    Workflow(WorkflowId),
    /// A repository's; every one when absent.
    Repository(Option<RepositoryId>),
}

/// Which events.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// After this one.
    pub after: u64,
    /// About this entity.
    pub entity: Option<String>,
    /// From where.
    pub scope: Scope,
    /// Instead of the first after the cursor, the last ones; still oldest first.
    pub newest: bool,
    /// At most so many.
    pub limit: usize,
}

/// The process that holds a store's write lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Writer {
    /// Its process id.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// It is stopped, and writes nothing until it is continued.
    pub stopped: bool,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, program, stopped } = self;
        write!(f, "process {pid} ({program}), which {}", if *stopped { "is stopped" } else { "is writing" })
    }
}

fn awaited(writer: Option<&Writer>) -> String {
    writer.map_or_else(|| "other writers".to_owned(), Writer::to_string)
}

/// A store could not do what it was asked.
#[derive(Debug, Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum StoreError {
    /// The disk, the file or the server failed.
    #[error("the store failed to {doing}: {cause}")]
    Failed {
        /// What it was doing.
        doing: String,
        /// What it said.
        cause: String,
    },
    /// Other writers did not make room in time.
    #[error("the store is busy: waited {waited_ms} ms for {}", awaited(.writer.as_ref()))]
    Busy {
        /// For how long.
        waited_ms: u64,
        /// The process that was writing, where that can be known.
        writer: Option<Writer>,
    },
    /// Somebody changed what this transaction had read; nothing of it was kept, and it may run again.
    #[error("another writer was faster")]
    Conflict,
    /// The connection was lost while committing, and whether it was done cannot be found out now.
    #[error("the connection was lost while committing, and nobody could be asked since whether {op} was done")]
    OutcomeUnknown {
        /// The operation; repeated with the same id it is done at most once.
        op: String,
    },
    /// The server does not answer.
    #[error("{server} cannot be reached: {cause}")]
    Unreachable {
        /// Which.
        server: String,
        /// Why.
        cause: String,
    },
    /// A row says something this toft cannot read.
    #[error("{table} row `{id}` cannot be read: {cause}")]
    Unreadable {
        /// Whose row.
        table: Cow<'static, str>,
        /// Which one.
        id: String,
        /// Why.
        cause: String,
    },
    /// Written by a newer toft.
    #[error("the store has schema {found}, and this toft knows schemas up to {known}")]
    Newer {
        /// What the store has.
        found: i64,
        /// What this toft knows.
        known: i64,
    },
    /// Written by an older toft, and only an explicit migration may upgrade it.
    #[error("the store has schema {found}, and this toft needs schema {known}")]
    Older {
        /// What the store has.
        found: i64,
        /// What this toft needs.
        known: i64,
    },
    /// The file exists but is not a whole store: empty, truncated, overwritten, or replaced under this process.
    #[error("the store is damaged: {reason} ({place})")]
    Damaged {
        /// The file, or what toft was doing when it found out.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system or the server does not let toft use the store.
    #[error("could not {doing}: {cause}")]
    Blocked {
        /// What kind of obstacle.
        fault: Fault,
        /// What toft was doing.
        doing: String,
        /// What the system or server said.
        cause: String,
    },
    /// The place cannot hold a store.
    #[error("{path} cannot hold a store: {reason}")]
    Unsuitable {
        /// Where.
        path: String,
        /// Why.
        reason: String,
    },
    /// There is none.
    #[error("there is no store at {path}")]
    Missing {
        /// Where.
        path: String,
    },
}

/// Obstacles outside the store, each with its own remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// File permissions, or a sandbox.
    AccessDenied,
    /// The file or its file system takes no writes.
    ReadOnly,
    /// The disk or the quota is full.
    NoSpace,
    /// The server rejected the user or the password.
    Credentials,
}

impl Fault {
    /// The obstacle behind an error of the operating system, if it is one of these.
    #[must_use]
    pub fn of(error: &std::io::Error) -> Option<Self> {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::PermissionDenied => Some(Self::AccessDenied),
            ErrorKind::ReadOnlyFilesystem => Some(Self::ReadOnly),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(Self::NoSpace),
            _ => None,
        }
    }
}

impl StoreError {
    /// An error of the operating system, by what kind it is.
    pub fn io(doing: impl Into<String>, error: &std::io::Error) -> Self {
        let (doing, cause) = (doing.into(), error.to_string());
        match Fault::of(error) {
            Some(fault) => Self::Blocked { fault, doing, cause },
            None => Self::Failed { doing, cause },
        }
    }
}
