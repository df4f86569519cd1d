//! The daily verbs.

use std::time::Duration;

use clap::Args;
use toft::{lease::Fence, time::parse_duration};

use super::{Reach, positive, priority};

/// What can start now.
#[derive(Args, Debug)]
pub(crate) struct Ready {
    /// Only with this label
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Also say why open tasks cannot start
    #[arg(long)]
    pub(crate) explain: bool,
    /// At most so many rows
    #[arg(long, default_value = "20", value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Take a task.
#[derive(Args, Debug)]
pub(crate) struct Claim {
    /// An issue, task or workflow; the best there is when left out
    pub(crate) id: Option<String>,
    /// Only with this label
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Take up to N tasks at once
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) count: Option<usize>,
    /// How long the lease lasts unless renewed
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    /// How long a living but silent process keeps it
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) cap: Option<Duration>,
    /// The lease follows this process: freed when it dies
    #[arg(long, value_name = "PID", env = "TOFT_PID")]
    pub(crate) pid: Option<u32>,
    /// Wait for something to become ready
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Only tasks of this worktree
    #[arg(long)]
    pub(crate) here: bool,
    /// Take over what another session of the same agent holds; that session can write no more
    #[arg(long, requires = "id")]
    pub(crate) take_over: bool,
    /// Also give a workspace to do it in; nothing is claimed without one
    #[arg(long, visible_alias = "workspace")]
    pub(crate) ws: bool,
    #[command(flatten)]
    pub(crate) from: super::ws::From,
}

/// Checkpoint, and renew.
#[derive(Args, Debug)]
pub(crate) struct Save {
    /// The task; what I hold when left out
    pub(crate) id: Option<String>,
    /// What a successor must know; without it the lease is only renewed
    #[arg(short, long)]
    pub(crate) message: Option<String>,
    /// plan, replan, progress, decision, error, recovery, handoff, complete
    #[arg(long, default_value = "progress")]
    pub(crate) kind: String,
    /// Anything structured, as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) detail: Option<String>,
    /// A file it speaks of
    #[arg(long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// The commit it speaks of
    #[arg(long)]
    pub(crate) commit: Option<String>,
    /// Only if this is still the newest checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) parent: Option<String>,
    /// Keep a value under this key; the same again changes nothing
    #[arg(long, requires = "value")]
    pub(crate) key: Option<String>,
    /// The value: JSON, or plain text
    #[arg(long, requires = "key")]
    pub(crate) value: Option<String>,
    /// How long the lease lasts from now on
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// Which hold a write is made under.
#[derive(Args, Debug)]
pub(crate) struct Hold {
    /// The fence that claim printed; that of this session when left out
    #[arg(long, value_name = "FENCE")]
    pub(crate) fence: Option<Fence>,
}

/// End a hold.
#[derive(Args, Debug)]
pub(crate) struct Finish {
    /// [ID] [done|failed|release|handoff|waiting]
    #[arg(value_name = "ID|OUTCOME", num_args = 0..=2)]
    pub(crate) words: Vec<String>,
    /// In words
    #[arg(short, long, default_value = "")]
    pub(crate) message: String,
    /// The commit that shows it
    #[arg(long, value_name = "COMMIT", alias = "commit")]
    pub(crate) evidence: Option<String>,
    /// A diff or other artefact that shows it
    #[arg(long, value_name = "NAME", conflicts_with = "evidence")]
    pub(crate) artifact: Option<String>,
    /// Why nothing had to change
    #[arg(long, value_name = "REASON", conflicts_with_all = ["evidence", "artifact"])]
    pub(crate) no_change: Option<String>,
    /// What it cost
    #[arg(long)]
    pub(crate) cost: Option<f64>,
    /// Waiting: until this much time has passed
    #[arg(long = "for", value_name = "DUR", value_parser = parse_duration)]
    pub(crate) for_time: Option<Duration>,
    /// Waiting: until this task is done
    #[arg(long, value_name = "TASK", conflicts_with = "for_time")]
    pub(crate) on: Option<String>,
    /// Waiting: until this command succeeds, as reported by agent answer
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["for_time", "on"])]
    pub(crate) command: Option<String>,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// One thing, whole.
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// An issue, task, workflow or agent; @ is what I hold
    #[arg(default_value = "@")]
    pub(crate) id: String,
    /// Say why a task cannot start
    #[arg(long)]
    pub(crate) why: bool,
    /// Only the value under this key
    #[arg(long, value_name = "KEY")]
    pub(crate) state: Option<String>,
    /// Everything whoever takes it over must know, to be read by an agent
    #[arg(long, conflicts_with_all = ["why", "state"])]
    pub(crate) context: bool,
    /// With --context: how many tokens it may have
    #[arg(long, value_name = "TOKENS", default_value_t = toft::briefing::CONTEXT_TOKENS, requires = "context")]
    pub(crate) budget: usize,
    /// What was said in an attempt, by its number; the newest when left out
    #[arg(long, value_name = "ATTEMPT", num_args = 0..=1, require_equals = true, default_missing_value = "0", conflicts_with_all = ["why", "state", "context"])]
    pub(crate) log: Option<u64>,
    /// An issue as it was at a revision or a moment: a commit, 2026-11-15, 2026-11-15T12:00:00Z
    #[arg(long, value_name = "REV|TIME", conflicts_with_all = ["why", "state", "context", "log"])]
    pub(crate) at: Option<String>,
    /// At most so many checkpoints, events or tasks
    #[arg(long, default_value = "10", value_parser = positive)]
    pub(crate) limit: usize,
}

/// Issues, newest first; tasks where there are none.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// issues, tasks, or a workflow, for its tasks
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Those that are over, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only with this status
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only with this label
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Only issues and tasks that contain these words
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// Only issues of this type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) issue_type: Option<String>,
    /// Only issues of this priority
    #[arg(short, long, value_name = "P0..P4", value_parser = priority)]
    pub(crate) priority: Option<u8>,
    /// Only issues assigned to this agent
    #[arg(long, value_name = "AGENT")]
    pub(crate) assignee: Option<String>,
    /// Only parts of this issue
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Only open issues that cannot start yet
    #[arg(long)]
    pub(crate) blocked: bool,
    /// Order of issues
    #[arg(long, value_name = "ORDER", default_value = "created")]
    pub(crate) sort: IssueOrder,
    /// Only issues of this ledger
    #[arg(long, value_name = "NAME")]
    pub(crate) ledger: Option<String>,
    /// Issues as they were at a revision or a moment
    #[arg(long, value_name = "REV|TIME")]
    pub(crate) at: Option<String>,
    /// At most so many rows
    #[arg(long, default_value = "20", value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// How issues are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IssueOrder {
    /// Newest first.
    Created,
    /// Most urgent first.
    Priority,
}

/// An overview.
#[derive(Args, Debug)]
pub(crate) struct Status {
    /// At most so many rows of each kind
    #[arg(long, default_value = "20", value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// History.
#[derive(Args, Debug)]
pub(crate) struct Log {
    /// About this issue, task, workflow or agent; of an issue also what version control remembers
    pub(crate) id: Option<String>,
    /// After this event
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
    /// Go on printing what happens
    #[arg(short, long, conflicts_with = "id")]
    pub(crate) follow: bool,
    /// With --follow: stop when nothing happened for this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration, requires = "follow")]
    pub(crate) timeout: Option<Duration>,
    /// At most so many
    #[arg(long, default_value = "20", value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}
