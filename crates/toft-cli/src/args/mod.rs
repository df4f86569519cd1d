//! What can be typed.

mod agent;
mod commands;
mod flow;
mod plan;
mod run;
mod setup;
mod share;
mod upkeep;
mod work;
mod ws;

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use commands::commands;

pub(crate) use self::{
    agent::{AgentCommand, Assign, Inbox, Register, Send},
    flow::{Apply, FlowCommand, FromTemplate, NewFlow, One, TaskFields, TemplateCommand},
    plan::{
        Add, Compact, Delete, EditIssue, Export, Fields, Graph, Import, LedgerArgs, LedgerCommand, Redo, Restore, Undo,
    },
    run::{Confine, Prime, Run, Sandboxed, Stop, Try},
    setup::{Hook, Setup},
    share::{Accept, Doctor, Move, Propose, Purge, Reject, Sync, Withdraw},
    upkeep::{Backup, BackupCommand},
    work::{Claim, Finish, Hold, List, Log, Ready, Save, Show, Status},
    ws::{CreateWs, From, Shell, ShellKind, Ws, WsCommand},
};

const EXAMPLES: &str = "\
Examples:
  toft init                                   set up this repository
  toft add \"Pin the orders schema\"            write work down
  toft claim                                  take the best ready work under a lease
  toft claim --ws                             the same, with a directory of its own to do it in
  toft save -m \"schema drafted\"               checkpoint, and renew the lease
  toft finish -m \"pinned\" --evidence 9d3f2c1  done, with the commit that shows it

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found or ambiguous, 4 not allowed, 5 conflict,
6 nothing to do, 7 busy or timed out: retry, 8 needs doctor.";

/// State and coordination for fleets of coding agents.
///
/// Every worktree of a repository shares one store. An agent claims a task under a lease, saves checkpoints,
/// and finishes it with evidence; if it dies, the task is free again.
#[derive(Debug, Parser)]
#[command(name = "toft", version, after_help = EXAMPLES, propagate_version = false, disable_help_subcommand = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags every command takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global")]
pub(crate) struct Global {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// The store: repo, worktree, global, a path, or postgres://…
    #[arg(long, value_name = "STORE", global = true)]
    pub(crate) store: Option<String>,
    /// Who asks; TOFT_AGENT or the user's name when left out
    #[arg(long = "as", value_name = "AGENT", global = true)]
    pub(crate) agent: Option<String>,
    /// JSON on stdout; with FIELDS, only those of each row
    #[arg(long, value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "", global = true)]
    pub(crate) json: Option<String>,
    /// Print ids only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colours in text
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: Color,
    /// Operation id: running the same one again changes nothing
    #[arg(long, value_name = "ID", global = true, hide = true)]
    pub(crate) op: Option<String>,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Which rows a command reads.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Only this worktree
    #[arg(long, conflicts_with_all = ["all_repos", "worktree"])]
    pub(crate) here: bool,
    /// Only the worktree of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) worktree: Option<String>,
    /// Every repository of every registered store
    #[arg(long)]
    pub(crate) all_repos: bool,
}

commands! {
    Init(Init) "init" [] "Set up here: make the store";
    Where(Nothing) "where" [] "Which store, repository, worktree and agent, and why";
    Doctor(Doctor) "doctor" [] "Prove that everything is really on";
    Add(Add) "add" ["create", "new"] "Write work down";
    Edit(EditIssue) "edit" ["update", "set"] "Change an issue: fields, labels, needs, comments";
    Ready(Ready) "ready" ["todo"] "What can start now";
    Claim(Claim) "claim" ["take", "next", "start"] "Take a task under a lease";
    Save(Save) "save" ["checkpoint", "heartbeat", "renew"] "Checkpoint, and renew the lease";
    Finish(Finish) "finish" ["done", "close", "complete"] "End a hold: done, failed, release, handoff, waiting";
    Show(Show) "show" ["get", "view"] "Anything, by any unique prefix";
    List(List) "list" ["ls", "issues"] "Query issues and tasks";
    Graph(Graph) "graph" [] "The plan as a picture: terminal, SVG, Mermaid, DOT";
    Status(Status) "status" ["st"] "Who is on what, and what needs you";
    Log(Log) "log" ["events", "history"] "What happened";
    Flow(Flow) "flow" ["workflow", "flows"] "Workflows and templates";
    Ws(Ws) "ws" ["workspace", "workspaces", "worktree"] "Workspaces: a directory of its own for every job";
    Run(Run) "run" [] "Claim, make a workspace, run a command, renew, record, repeat";
    Stop(Stop) "stop" ["kill"] "Stop one agent now, and give its task back or park it";
    Prime(Prime) "prime" [] "What a session needs to begin, in 1,500 tokens";
    Try(Try) "try" ["demo"] "A demo that can be thrown away: five agents, forty issues, ten seconds";
    Sync(Sync) "sync" ["pull", "push"] "Exchange every ledger with other clones, under any version control";
    Propose(Propose) "propose" [] "Offer an issue to another ledger";
    Withdraw(Withdraw) "withdraw" [] "Take a proposal back";
    Accept(Accept) "accept" [] "Take what somebody proposed into the plan";
    Reject(Reject) "reject" [] "Refuse what somebody proposed; they hear why";
    Move(Move) "move" ["mv"] "Move issues to another ledger";
    Purge(Purge) "purge" [] "Take an issue's text out of a ledger's history";
    Setup(Setup) "setup" [] "Wire toft into the coding agents used here";
    Hook(Hook) "hook" [] "What a coding agent's hooks call";
    Mcp(Nothing) "mcp" [] "Serve the Model Context Protocol on standard input and output";
    Shell(Shell) "shell" [] "Print a shell function: tcd ID goes to an issue's workspace";
    Trust(Trust) "trust" [] "Let this repository's own commands set workspaces up";
    Agent(Agent) "agent" ["agents"] "Agents and their messages";
    Assign(Assign) "assign" ["delegate"] "Give an issue or task to one agent";
    Backup(Backup) "backup" [] "Back up the store to a file, or restore it";
    Migrate(Nothing) "migrate" [] "Upgrade the store to the schema of this version";
    Gc(Gc) "gc" [] "Forget old history, messages and attempts, and give space back";
    Ledger(LedgerArgs) "ledger" ["ledgers"] "The ledgers seen from here";
    Delete(Delete) "delete" ["rm"] "Delete an issue; restore takes that back";
    Restore(Restore) "restore" [] "Take the deletion of an issue back";
    Undo(Undo) "undo" [] "Take your last operations back, where that is safe";
    Redo(Redo) "redo" [] "Do again what you took back with undo";
    Compact(Compact) "compact" [] "Put ledgers in order; what has long been over goes to the archive";
    Import(Import) "import" [] "Take issues in: beads, jsonl, markdown, caw, langgraph";
    Sandboxed(Sandboxed) "sandboxed" [] "Internal: becomes a command in a sandbox";
    Export(Export) "export" [] "Give issues out: beads, jsonl, csv, schema";
}

impl Command {
    /// Files that it reads; `-` is standard input.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Flow(Flow { command: FlowCommand::Apply(args) }) => vec![args.file.clone()],
            Self::Flow(Flow { command: FlowCommand::Replan { file, .. } }) => vec![file.clone()],
            Self::Import(args) => vec![PathBuf::from(&args.file)],
            Self::Add(args) if args.title == "-" => vec![PathBuf::from("-")],
            _ => Vec::new(),
        }
    }

    /// Whether it changes ledgers, workspaces or settings, which no transaction of the store covers.
    pub(crate) fn writes_beside_the_store(&self) -> bool {
        matches!(
            self,
            Self::Add(_)
                | Self::Edit(_)
                | Self::Delete(_)
                | Self::Restore(_)
                | Self::Undo(_)
                | Self::Redo(_)
                | Self::Import(_)
                | Self::Compact(_)
                | Self::Move(_)
                | Self::Purge(_)
                | Self::Propose(_)
                | Self::Withdraw(_)
                | Self::Accept(_)
                | Self::Reject(_)
                | Self::Sync(_)
                | Self::Ledger(_)
                | Self::Ws(_)
                | Self::Assign(_)
        )
    }

    /// Whether ledgers may be exchanged after it, where configuration wants that: it works on the plan, and nobody but a
    /// person or an agent waits for it.
    pub(crate) fn may_sync(&self) -> bool {
        matches!(
            self,
            Self::Add(_)
                | Self::Edit(_)
                | Self::Ready(_)
                | Self::Claim(_)
                | Self::Finish(_)
                | Self::Show(_)
                | Self::List(_)
                | Self::Status(_)
                | Self::Delete(_)
                | Self::Restore(_)
        )
    }
}

/// Set up here.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// For a directory without version control
    #[arg(long)]
    pub(crate) no_vcs: bool,
    /// Keep issues in the working tree, in .toft/, to be reviewed and committed like code
    #[arg(long)]
    pub(crate) tree: bool,
    /// Plan in private: new issues go to a ledger of your own, and nothing to the repository
    #[arg(long)]
    pub(crate) contributor: bool,
    /// Keep the repository's own ledger again: new issues go there
    #[arg(long, conflicts_with = "contributor")]
    pub(crate) maintainer: bool,
    /// With --contributor: private plans go to this repository, of whatever kind
    #[arg(long, value_name = "DIR", requires = "contributor")]
    pub(crate) planning: Option<PathBuf>,
    /// With --contributor: the remote that keeps the project's own ledger
    #[arg(long, value_name = "REMOTE", requires = "contributor")]
    pub(crate) upstream: Option<String>,
    /// With --contributor: do not install the pre-push hook that looks for private issues
    #[arg(long, requires = "contributor")]
    pub(crate) no_guard: bool,
    /// Ask nothing
    #[arg(long)]
    pub(crate) no_input: bool,
}

/// Who may do what, for `toft agent --help`.
fn rights() -> String {
    format!(
        "Rights by role; everything else, every role may do. You are a person unless --as, TOFT_AGENT or a coding agent's shell says otherwise.\n\n{}",
        toft::rights::table()
    )
}

#[derive(Args, Debug)]
pub(crate) struct Nothing {}

/// A number above 0.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("`{text}` is not a number above 0"))
}

/// Workflows and templates.
#[derive(Args, Debug)]
pub(crate) struct Flow {
    #[command(subcommand)]
    pub(crate) command: FlowCommand,
}

/// Agents and their messages.
#[derive(Args, Debug)]
#[command(after_help = rights())]
pub(crate) struct Agent {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

/// Let this repository's own commands set workspaces up. Without a flag, shows them.
#[derive(Args, Debug)]
pub(crate) struct Trust {
    /// Trust exactly these
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Trust them no longer
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
}

/// Forget what has been kept long enough, and give its space back. Work itself is never forgotten: tasks, the newest
/// checkpoint of each, unread messages, and everything about open tasks stay.
#[derive(Args, Debug)]
#[command(
    after_help = "Defaults: events, attempts, checkpoints and removed workspaces 90d, messages and idle agents 30d, receipts 7d, unreferenced blobs 1d; [retention] in config.toml changes them.\n\n\
    Example: toft gc --data --older-than 30d"
)]
pub(crate) struct Gc {
    /// Rows in the store: old events, seen messages, ended attempts, checkpoints of ended tasks, idle agents, receipts
    #[arg(long, required = true)]
    pub(crate) data: bool,
    /// Keep nothing of these longer than this, whatever configuration says; agents at least a day, blobs an hour
    #[arg(long, value_name = "DUR", value_parser = toft::time::parse_duration)]
    pub(crate) older_than: Option<std::time::Duration>,
}
