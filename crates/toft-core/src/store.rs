//! The interface of a store: queries and writes, without rules.
//!
//! Every engine passes the same conformance suite; the memory store in [`crate::testing`] is the reference
//! implementation.

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    agent::Agent,
    change::{Change, Event, QueueEntry, Receipt, Write},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskStatus, Template, Workflow, WorkflowStatus},
    gate::Gate,
    id::{AgentId, GateId, LandingId, MessageId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    landing::{Landing, Verdict},
    lease::Lease,
    message::{InboxItem, Message},
    repository::{Repository, Scope, Worktree},
    retention::RetentionKind,
    schema::JsonSchema,
    time::{Now, Timestamp},
    token::Token,
    workspace::Workspace,
};

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A store.
pub trait Store: Send + Sync {
    /// Opens a transaction. Write transactions are serializable: each takes effect on the newest state.
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>>;

    /// A number that changes whenever another connection commits, so that a waiting process can poll cheaply.
    fn change_counter(&self) -> Result<u64>;

    /// How long a waiting process may sleep if nothing changes: leases and timers end without a commit.
    fn look_again_after(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Deletes up to `limit` rows of a kind that are older than `before`, in a transaction of its own; returns how
    /// many.
    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize>;
}

/// A space that one process holds in memory: transactions commit there, and are put down in groups. Nobody may be answered
/// before the group is [`GroupEnd::Done`].
pub trait GroupStore: Store {
    /// Looks up together which of these operations were done before.
    fn expect(&self, ops: &[OpId]) -> Result<()>;

    /// Whether a verb asked for something that is not in memory since the last call: it has to run on the store itself.
    fn went_outside(&self) -> bool;

    /// Commits what was done since the last group. Unless that is [`GroupEnd::Done`], what is in memory counts no more.
    fn put_down(&self) -> GroupEnd;
}

/// How a group ended.
#[derive(Debug)]
pub enum GroupEnd {
    /// Everything in it is committed.
    Done,
    /// Something else was committed since the space was loaded; nothing of the group is.
    Stale,
    /// The connection was lost: all of it is committed, or nothing.
    Unknown,
    /// Nothing of it is committed.
    Failed(StoreError),
}

/// Reads in a transaction of its own, and retries after a conflict.
pub fn ask<T>(store: &dyn Store, question: impl Fn(&mut dyn StoreTx) -> Result<T>) -> Result<T> {
    loop {
        match store.begin(Access::Read).and_then(|mut tx| question(tx.as_mut())) {
            Err(StoreError::Conflict) => {}
            answered => return answered,
        }
    }
}

/// The access mode of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only: one consistent view.
    Read,
    /// Read and write.
    Write,
}

/// The queries that a verb will make, so that a remote store can answer them in one round trip. Only a hint.
#[derive(Clone, Debug)]
pub enum Prefetch<'a> {
    /// Nothing in particular.
    Unknown,
    /// The caller and the best tasks in scope.
    Claim {
        /// The agent's name.
        actor: &'a str,
        scope: &'a Scope,
        /// The head of the queue: the key and the number of entries. Absent if the claim will read more than it takes.
        head: Option<(QueueKey, usize)>,
        /// Number of leases that are checked first.
        leases: usize,
        /// Number of timers that are checked first.
        timers: usize,
    },
    /// One held task and the rows that depend on it.
    Hold {
        /// Its whole id.
        task: &'a str,
    },
}

/// One transaction. If it is dropped without [`StoreTx::commit`], nothing is changed.
///
/// A store may let writers overlap and detect at the end that rows which one of them read have changed: then
/// [`StoreTx::commit`] and [`StoreTx::validate_reads`] return [`StoreError::Conflict`], and the verb runs again.
pub trait StoreTx {
    /// Announces the next queries.
    fn prefetch(&mut self, _ahead: Prefetch<'_>) -> Result<()> {
        Ok(())
    }
    /// Checks that everything that was read was true at one moment.
    fn validate_reads(&mut self) -> Result<()> {
        Ok(())
    }
    /// The store's wall clock, and the monotonic clock of the calling machine.
    fn now(&mut self) -> Result<Now>;
    /// Wall-clock time of the newest event.
    fn newest_event_at(&mut self) -> Result<Option<Timestamp>>;
    /// The recorded answer of this operation, if it ran before.
    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>>;
    /// Ids of any kind that start with `prefix`, in order.
    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>>;

    /// A workspace.
    fn workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>>;
    /// Workspaces, newest first.
    fn workspaces(&mut self, query: &WorkspaceQuery) -> Result<Vec<Workspace>>;

    /// A landing.
    fn landing(&mut self, id: &LandingId) -> Result<Option<Landing>>;
    /// Landings, newest first.
    fn landings(&mut self, query: &LandingQuery) -> Result<Vec<Landing>>;
    /// The result of checks on a tree, by its key.
    fn verdict(&mut self, key: &str) -> Result<Option<Verdict>>;
    /// Checks of a repository that changed their mind, by key.
    fn flaky_verdicts(&mut self, repository: &RepositoryId) -> Result<Vec<Verdict>>;

    /// A token, by the digest of its secret.
    fn token(&mut self, digest: &str) -> Result<Option<Token>>;
    /// Every token, by name.
    fn tokens(&mut self) -> Result<Vec<Token>>;

    /// Every repository, by id.
    fn repositories(&mut self) -> Result<Vec<Repository>>;
    /// A repository's worktrees, by name.
    fn worktrees(&mut self, repository: &RepositoryId) -> Result<Vec<Worktree>>;

    /// A workflow.
    fn workflow(&mut self, id: &WorkflowId) -> Result<Option<Workflow>>;
    /// Workflows, newest first.
    fn workflows(&mut self, query: &WorkflowQuery) -> Result<Vec<Workflow>>;
    /// The active workflow of an issue, if any.
    fn workflow_of_issue(&mut self, issue: &str) -> Result<Option<Workflow>>;
    /// Workflows of a repository, or of all repositories, whose issue's ledger has to be updated, up to `limit`.
    fn ledger_pending(&mut self, repository: Option<&RepositoryId>, limit: usize) -> Result<Vec<Workflow>>;
    /// How many tasks of a workflow have each status.
    fn progress(&mut self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>>;
    /// Whether any pending task of the workflow has no open blockers.
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
    /// Leases due for a check: past their `check_at`; with a host, also every lease that follows a process of that
    /// host.
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
    /// Messages in an inbox: urgent first, then oldest first.
    fn inbox(&mut self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<InboxItem>>;
    /// Gates of a task, oldest first.
    fn gates(&mut self, task: &TaskId) -> Result<Vec<Gate>>;
    /// A gate.
    fn gate(&mut self, id: &GateId) -> Result<Option<Gate>>;
    /// Closed gates that a person or a program has to open, oldest first.
    fn unopened_gates(&mut self, scope: &Scope, limit: usize) -> Result<Vec<Gate>>;
    /// A version of a template; the newest if no version is given.
    fn template(&mut self, name: &str, version: Option<u32>) -> Result<Option<Template>>;
    /// The newest version of every template, by name.
    fn templates(&mut self) -> Result<Vec<Template>>;

    /// Limited workflows in scope that have free capacity: each has a lane of its own.
    fn open_lanes(&mut self, scope: &Scope) -> Result<Vec<Workflow>>;
    /// Queue entries with their tasks, in the order of rank.
    fn queued(&mut self, scan: &QueueScan<'_>) -> Result<Vec<(QueueEntry, Task)>>;
    /// Lanes that have entries and whose names start with one of `prefixes`, in order; up to `limit` for each prefix.
    fn lanes(&mut self, prefixes: &[String], limit: usize) -> Result<Vec<String>>;
    /// The queue entry of a task.
    fn queue_entry(&mut self, task: &TaskId) -> Result<Option<QueueEntry>>;

    /// Events after a cursor, oldest first.
    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>>;

    /// Appends the change's event and writes its rows.
    fn apply(&mut self, change: &Change) -> Result<()>;
    /// Writes derived rows without appending an event.
    fn write_derived(&mut self, writes: &[Write]) -> Result<()>;
    /// Commits durably.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Selects workflows.
#[derive(Clone, Debug, Default)]
pub struct WorkflowQuery {
    /// The scope of the query.
    pub scope: Scope,
    /// With one of these statuses; any when empty.
    pub statuses: Vec<WorkflowStatus>,
    /// Maximum number of rows; all if 0.
    pub limit: usize,
}

/// Selects tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    pub workflow: Option<WorkflowId>,
    /// The scope of the query.
    pub scope: Scope,
    /// With one of these statuses; any when empty.
    pub statuses: Vec<TaskStatus>,
    /// Maximum number of rows; all if 0.
    pub limit: usize,
}

/// Selects a part of the queue. Its lanes are read as if they were one.
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
    /// Maximum number of entries; all if 0.
    pub limit: usize,
    /// The caller takes every entry that is returned, so a store may hide these entries from other claims.
    pub taking: bool,
}

/// The indexes of the queue: a scan under any of these keys skips no entries.
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

/// Selects workspaces.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceQuery {
    /// Of this repository; of every repository if absent.
    pub repository: Option<RepositoryId>,
    /// Only workspaces that are not removed.
    pub live: bool,
    /// Maximum number of rows; all if 0.
    pub limit: usize,
}

/// Selects landings.
#[derive(Clone, Debug, Default)]
pub struct LandingQuery {
    /// Of this repository; of every repository if absent.
    pub repository: Option<RepositoryId>,
    /// Only landings that may still land.
    pub live: bool,
    /// Maximum number of rows; all if 0.
    pub limit: usize,
}

/// Selects leases.
#[derive(Clone, Debug)]
pub enum LeasesOf {
    /// Of an agent.
    Agent(AgentId),
    /// Of a workflow.
    Workflow(WorkflowId),
    /// Of a repository; of every repository if absent.
    Repository(Option<RepositoryId>),
}

/// Selects events.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// After this event number.
    pub after: u64,
    /// About this entity.
    pub entity: Option<String>,
    /// The scope of the query.
    pub scope: Scope,
    /// The last events instead of the first after the cursor; still oldest first.
    pub newest: bool,
    /// Maximum number of events.
    pub limit: usize,
}

/// The process that holds a store's write lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Writer {
    /// Its process id.
    pub pid: u32,
    pub program: String,
    /// It is stopped, and does not release the lock until it is continued.
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

/// Why a store operation failed.
#[derive(Debug, Error, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum StoreError {
    /// The disk, the file or the server failed.
    #[error("the store failed to {doing}: {cause}")]
    Failed {
        /// The operation that failed.
        doing: String,
        /// The error message of the system.
        cause: String,
    },
    /// The write lock was not acquired in time.
    #[error("the store is busy: waited {waited_ms} ms for {}", awaited(.writer.as_ref()))]
    Busy {
        /// How long the caller waited.
        waited_ms: u64,
        /// The process that held the lock, if known.
        writer: Option<Writer>,
    },
    /// Another transaction changed rows that this one had read; it was rolled back, and may run again.
    #[error("another writer was faster")]
    Conflict,
    /// The connection was lost during the commit, and the outcome cannot be determined now.
    #[error("the connection was lost while committing, and nobody could be asked since whether {op} was done")]
    OutcomeUnknown {
        /// The operation; if it is repeated with the same id, it is executed at most once.
        op: String,
    },
    /// The server does not respond.
    #[error("{server} cannot be reached: {cause}")]
    Unreachable { server: String, cause: String },
    /// This version of toft cannot read a row.
    #[error("{table} row `{id}` cannot be read: {cause}")]
    Unreadable {
        table: Cow<'static, str>,
        /// The id of the row.
        id: String,
        cause: String,
    },
    /// Written by a newer toft.
    #[error("the store has schema {found}, and this toft knows schemas up to {known}")]
    Newer {
        /// The schema version of the store.
        found: i64,
        /// The newest schema version that this toft knows.
        known: i64,
    },
    /// Written by an older toft, and only an explicit migration may upgrade it.
    #[error("the store has schema {found}, and this toft needs schema {known}")]
    Older {
        /// The schema version of the store.
        found: i64,
        /// The schema version that this toft needs.
        known: i64,
    },
    /// The file exists but is not a whole store: empty, truncated, overwritten, or replaced under this process.
    #[error("the store is damaged: {reason} ({place})")]
    Damaged {
        /// The file, or the operation during which the damage was found.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system or the server does not let toft use the store.
    #[error("could not {doing}: {cause}")]
    Blocked {
        /// The kind of obstacle.
        fault: Fault,
        /// The operation that failed.
        doing: String,
        /// The error message of the system or server.
        cause: String,
    },
    /// The location cannot hold a store.
    #[error("{path} cannot hold a store: {reason}")]
    Unsuitable {
        /// The location.
        path: String,
        reason: String,
    },
    /// There is no store.
    #[error("there is no store at {path}")]
    Missing {
        /// The location.
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
    /// Converts an error of the operating system.
    pub fn io(doing: impl Into<String>, error: &std::io::Error) -> Self {
        let (doing, cause) = (doing.into(), error.to_string());
        match Fault::of(error) {
            Some(fault) => Self::Blocked { fault, doing, cause },
            None => Self::Failed { doing, cause },
        }
    }
}
