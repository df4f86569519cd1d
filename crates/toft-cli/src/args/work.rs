//! The daily verbs.

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use toft::{lease::Fence, time::parse_duration};

use clap_complete::ArgValueCompleter;

use super::{Reach, complete, positive, priority};

/// List work that can start now.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft ready -l db         # only work with this label
  toft ready --explain     # also show why other work cannot start")]
pub(crate) struct Ready {
    /// Only work with this label; repeat to require several
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Also explain why other open work cannot start
    #[arg(long)]
    pub(crate) explain: bool,
    /// Maximum number of rows
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Claim a task under a lease. Until the lease ends, no other agent gets that task.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft claim                     # the best ready task
  toft claim tf-a41c --ws        # this issue, with a workspace of its own
  toft claim -l db --wait=10m    # wait up to ten minutes for work with this label")]
pub(crate) struct Claim {
    /// Issue, task or workflow to claim [default: the best that is ready]
    #[arg(add = ArgValueCompleter::new(complete::issues))]
    pub(crate) id: Option<String>,
    /// Only tasks with this label; repeat to require several
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Claim up to N tasks
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) count: Option<usize>,
    /// Lease duration, such as 90s, 30m, 2h [default: lease.ttl, 30m]
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    /// With --pid: how long a live process keeps the lease without renewing it [default: 4h]
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) cap: Option<Duration>,
    /// Process that the lease follows: when it ends, the lease ends
    #[arg(hide_short_help = true, long, value_name = "PID", env = "TOFT_PID")]
    pub(crate) pid: Option<u32>,
    /// Wait until work is ready, at most this long
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Only tasks of the worktree of this name; `.` is this one
    #[arg(long, value_name = "NAME")]
    pub(crate) worktree: Option<String>,
    /// Take over a task from another session of the same agent; that session's writes are then rejected
    #[arg(hide_short_help = true, long, requires = "id")]
    pub(crate) take_over: bool,
    /// Also create a workspace for the task. If that fails, nothing is claimed
    #[arg(long, visible_alias = "workspace")]
    pub(crate) ws: bool,
    #[command(flatten)]
    pub(crate) from: super::ws::From,
}

/// Save a checkpoint and renew the lease.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft save -m \"schema drafted, migration missing\"
  toft save                                      # only renew the lease
  toft save --key step-3 --value '{\"rows\":12}'   # `toft show --state step-3` reads the value")]
pub(crate) struct Save {
    /// Issue or task [default: the one you hold]
    pub(crate) id: Option<String>,
    /// What the next agent must know; without a message, the lease is only renewed
    #[arg(short, long)]
    pub(crate) message: Option<String>,
    /// Kind: plan, replan, progress, decision, error, recovery, handoff or complete
    #[arg(long, default_value = "progress")]
    pub(crate) kind: String,
    /// Structured detail, as JSON
    #[arg(hide_short_help = true, long, value_name = "JSON")]
    pub(crate) detail: Option<String>,
    /// File that the checkpoint is about; repeatable
    #[arg(hide_short_help = true, long = "file", value_name = "PATH")]
    pub(crate) files: Vec<String>,
    /// Commit that the checkpoint is about
    #[arg(hide_short_help = true, long)]
    pub(crate) commit: Option<String>,
    /// Save only if this is still the newest checkpoint
    #[arg(hide_short_help = true, long, value_name = "CHECKPOINT")]
    pub(crate) parent: Option<String>,
    /// Store a value under this key, for this task
    #[arg(long, requires = "value")]
    pub(crate) key: Option<String>,
    /// Value: JSON or plain text
    #[arg(long, requires = "key")]
    pub(crate) value: Option<String>,
    /// New lease duration
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// Which hold a write is made under.
#[derive(Args, Debug)]
pub(crate) struct Hold {
    /// Fence of the lease, from `toft claim --json` [default: this session's]
    #[arg(hide = true, long, value_name = "FENCE")]
    pub(crate) fence: Option<Fence>,
}

/// Finish a claimed task: done, failed, release, handoff, waiting.
#[derive(Args, Debug)]
#[command(after_help = "\
Outcomes:
  done      The work is complete (the default). Needs --evidence, --artifact or --no-change.
  failed    The attempt failed. The task is retried until its attempts are used up.
  release   End the lease without a result. The attempt is not counted; others may claim the task.
  handoff   Like release; -m is saved as a checkpoint for the next agent.
  waiting   Ask a person the question in -m, or wait for --for, --on or --command. The lease ends.

Examples:
  toft finish --evidence HEAD -m \"pinned\"
  toft finish waiting -m \"REST or gRPC?\"")]
pub(crate) struct Finish {
    /// Issue or task [default: the one you hold], and outcome [default: done]
    #[arg(value_name = "ID|OUTCOME", num_args = 0..=2, add = ArgValueCompleter::new(complete::issues))]
    pub(crate) words: Vec<String>,
    /// Result, reason, or question
    #[arg(short, long, default_value = "")]
    pub(crate) message: String,
    /// Commit that contains the work
    #[arg(long, value_name = "COMMIT", alias = "commit")]
    pub(crate) evidence: Option<String>,
    /// Name of a diff or other artefact that contains the work
    #[arg(long, value_name = "NAME", conflicts_with = "evidence")]
    pub(crate) artifact: Option<String>,
    /// Reason why nothing had to change
    #[arg(long, value_name = "REASON", conflicts_with_all = ["evidence", "artifact"])]
    pub(crate) no_change: Option<String>,
    /// Cost of the attempt
    #[arg(long)]
    pub(crate) cost: Option<f64>,
    /// With waiting: an answer that a person may choose; repeat for several
    #[arg(long = "choice", value_name = "ANSWER")]
    pub(crate) choices: Vec<String>,
    /// With waiting: wait this long
    #[arg(long = "for", value_name = "DUR", value_parser = parse_duration)]
    pub(crate) for_time: Option<Duration>,
    /// With waiting: wait until this task is done
    #[arg(long, value_name = "TASK", conflicts_with = "for_time")]
    pub(crate) on: Option<String>,
    /// With waiting: wait until this command succeeds, as `toft answer` reports
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["for_time", "on"])]
    pub(crate) command: Option<String>,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// Show an issue, task, workflow or agent.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft show tf-a41c --why     # why it cannot start
  toft show tf-a41c --log     # the log of its last attempt
  toft show tf-a41c --diff    # what its agent changed
  toft show @ --context       # the brief of the task you hold")]
pub(crate) struct Show {
    /// Issue, task, workflow or agent, by id or unique prefix; @ is the task you hold
    #[arg(default_value = "@", add = ArgValueCompleter::new(complete::issues))]
    pub(crate) id: String,
    /// Explain why a task cannot start
    #[arg(long)]
    pub(crate) why: bool,
    /// Print the value that `toft save --key` stored under this key
    #[arg(long, value_name = "KEY")]
    pub(crate) state: Option<String>,
    /// Print the full context of a task, for an agent
    #[arg(long, conflicts_with_all = ["why", "state"])]
    pub(crate) context: bool,
    /// With --context: token budget
    #[arg(long, value_name = "TOKENS", default_value_t = toft::briefing::CONTEXT_TOKENS, requires = "context")]
    pub(crate) budget: usize,
    /// Print the log of an attempt, by number [default: the newest]
    #[arg(long, value_name = "ATTEMPT", num_args = 0..=1, require_equals = true, default_missing_value = "0", conflicts_with_all = ["why", "state", "context"])]
    pub(crate) log: Option<u64>,
    /// With --log: line by line, as it was written
    #[arg(long, requires = "log")]
    pub(crate) raw: bool,
    /// Show the changes of an agent, committed or not: its workspace against where it began. @ is the workspace you are in
    #[arg(long, conflicts_with_all = ["why", "state", "context", "log", "at"])]
    pub(crate) diff: bool,
    /// With --diff: only how much each file changed
    #[arg(long, requires = "diff")]
    pub(crate) stat: bool,
    /// With --diff: mark words instead of lines; only with git
    #[arg(long, requires = "diff", conflicts_with = "stat")]
    pub(crate) words: bool,
    /// Show an issue as of a revision or time: a commit, 2026-11-15, 2026-11-15T12:00:00Z
    #[arg(long, value_name = "REV|TIME", conflicts_with_all = ["why", "state", "context", "log"])]
    pub(crate) at: Option<String>,
    /// Maximum number of checkpoints, events or tasks
    #[arg(long, default_value = "10", value_parser = positive)]
    pub(crate) limit: usize,
}

/// List and search issues and tasks.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft list --type bug -p P1 --sort priority
  toft list --blocked --label db
  toft list tasks --worktree .                  # the tasks of this worktree")]
pub(crate) struct List {
    /// What to list: issues, tasks, or a workflow's tasks; with --graph, what is tied to an issue
    #[arg(value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Include closed issues and ended tasks
    #[arg(long)]
    pub(crate) all: bool,
    /// Only issues or tasks with this status
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Only issues or tasks with this label; repeat to require several
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Only issues and tasks that contain these words
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// Only issues of this type
    #[arg(hide_short_help = true, short = 't', long = "type", value_name = "TYPE")]
    pub(crate) issue_type: Option<String>,
    /// Only issues of this priority
    #[arg(short, long, value_name = "P0..P4", value_parser = priority)]
    pub(crate) priority: Option<u8>,
    /// Only issues assigned to this agent
    #[arg(hide_short_help = true, long, value_name = "AGENT", add = ArgValueCompleter::new(complete::agents))]
    pub(crate) assignee: Option<String>,
    /// Only parts of this issue
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Only open issues that cannot start yet
    #[arg(long)]
    pub(crate) blocked: bool,
    /// Order of issues [default: created]
    #[arg(hide_short_help = true, long, value_name = "ORDER")]
    pub(crate) sort: Option<IssueOrder>,
    /// Only issues of this ledger
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    pub(crate) ledger: Option<String>,
    /// List issues as of a revision or time
    #[arg(hide_short_help = true, long, value_name = "REV|TIME", conflicts_with_all = ["all_repos", "worktree"])]
    pub(crate) at: Option<String>,
    /// Draw issues and what they need: lines, svg, mermaid or dot
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "lines",
        conflicts_with_all = ["sort", "all_repos", "worktree"])]
    pub(crate) graph: Option<GraphFormat>,
    /// Maximum number of rows; with --graph 200 unless you say otherwise
    #[arg(long, default_value_t = super::ROWS, default_value_if("graph", clap::builder::ArgPredicate::IsPresent, "200"), value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// How a graph of issues is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GraphFormat {
    /// Indented lines.
    Lines,
    Svg,
    Mermaid,
    /// For Graphviz.
    Dot,
}

/// How issues are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IssueOrder {
    /// Newest first.
    Created,
    /// Most urgent first.
    Priority,
}

/// Show who works on what, and what needs you.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft status
  toft status --all-repos     # all repositories")]
pub(crate) struct Status {
    /// Maximum number of rows of each kind
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Watch agents and answer them in the terminal: what needs you, agents, board, landing queue, graph, history, machines. Every
/// key runs a command of toft, which is shown. `?` lists the keys.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft top
  toft top --all-repos     # every repository of this user
  toft top --plain         # lines for a screen reader; type `agents`, or any toft command")]
pub(crate) struct Top {
    /// Every repository of every registered store
    #[arg(long)]
    pub(crate) all_repos: bool,
    /// Print lines instead of screens, and read commands from standard input
    #[arg(long)]
    pub(crate) plain: bool,
}

/// Watch agents and answer them in the browser.
#[derive(Args, Debug)]
#[command(after_help = "\
The address that is printed opens the board once, in one browser; Enter prints another. The board is reached from this machine
only. For a phone, pass requests on from a proxy with TLS and say its address with --url.

Examples:
  toft board
  toft board --all-repos                        # every repository of this user
  toft board --url https://box.example.ts.net   # behind a proxy, for other devices")]
pub(crate) struct Board {
    /// Every repository of every registered store
    #[arg(long)]
    pub(crate) all_repos: bool,
    /// The address to listen on [default: 127.0.0.1:7117, or a free port if another program has it]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// The address that browsers use, if a proxy with TLS passes their requests on
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// Show what running agents say and do.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft logs -f                  # all agents that run here, as it happens
  toft logs -f tf-a41c          # the agent on one issue, until it ends
  toft show tf-a41c --log       # an attempt that has ended")]
pub(crate) struct Logs {
    /// Only the agent on this issue or task, or of this name
    pub(crate) id: Option<String>,
    /// Keep printing as it happens
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print the lines as they were written
    #[arg(long)]
    pub(crate) raw: bool,
}

/// Show the history of events.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft history tf-a41c              # the history of one issue
  toft history --follow --json      # one JSON line for each new event")]
pub(crate) struct Log {
    /// Only history of this issue, task, workflow or agent
    pub(crate) id: Option<String>,
    /// Only events after this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,
    /// Keep printing events as they happen
    #[arg(short, long, conflicts_with = "id")]
    pub(crate) follow: bool,
    /// With --follow: stop after this long without an event
    #[arg(long, value_name = "DUR", value_parser = parse_duration, requires = "follow")]
    pub(crate) timeout: Option<Duration>,
    /// Maximum number of rows
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) reach: Reach,
}
