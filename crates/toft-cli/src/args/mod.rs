//! What can be typed.

mod agent;
mod commands;
mod complete;
mod fleet;
mod flow;
mod land;
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
    agent::{AgentCommand, AgentsOf, Answer, Assign, Inbox, Pause, Register, Resume, Send, Tell},
    fleet::{CreateToken, Join, Login, RepoCommand, Serve, TokenCommand},
    flow::{Apply, FlowCommand, FromTemplate, NewFlow, One, TaskFields, TemplateCommand},
    land::{LandArgs, LandCommand, LineComment, ReviewArgs, ReviewDecision},
    plan::{
        Add, Close, Compact, Delete, EditIssue, Export, Fields, Graph, Import, LedgerArgs, LedgerCommand, Redo,
        Restore, Undo,
    },
    run::{Acp, Prime, Run, SandboxMode, Sandboxed, Stop, Try},
    setup::{Hook, Setup},
    share::{Accept, Doctor, Move, Propose, Purge, Reject, Sync, Withdraw},
    upkeep::{Backup, BackupCommand, Schema, WriteTo},
    work::{Board, Claim, Finish, Hold, IssueOrder, List, Log, Logs, Ready, Save, Show, Status, Top},
    ws::{CreateWs, Diff, From, ListWs, OneWs, RescueWs, RmWs, Shell, ShellKind, Ws, WsCommand},
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  toft init                                   # set up this repository
  toft add \"Pin the orders schema\"            # add an issue
  toft claim                                  # claim the best ready task under a lease
  toft claim --ws                             # the same, with a workspace of its own
  toft save -m \"schema drafted\"               # save a checkpoint, and renew the lease
  toft finish -m \"pinned\" --evidence HEAD     # done; the commit is the evidence

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found or ambiguous, 4 not allowed, 5 conflict,
6 nothing to do, 7 busy or timed out: retry, 8 needs doctor.";

/// Run many coding agents on your repositories.
///
/// All worktrees of a repository share one task queue. An agent claims a task under a lease, works in a worktree of its own,
/// saves checkpoints, and finishes with evidence. If the agent dies, the task is free again.
#[derive(Debug, Parser)]
#[command(
    name = "toft",
    bin_name = "toft",
    version,
    help_template = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}",
    before_help = grouped_commands(),
    after_help = EXAMPLES,
    propagate_version = false,
    disable_help_subcommand = false
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags every command takes.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Global")]
pub(crate) struct Global {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Store: repo, worktree, global, a path, or postgres://…
    #[arg(long, value_name = "STORE", global = true)]
    pub(crate) store: Option<String>,
    /// Agent name [default: TOFT_AGENT, or your user name]
    #[arg(long = "as", value_name = "AGENT", global = true)]
    pub(crate) agent: Option<String>,
    /// Print JSON; with FIELDS, only those fields of each row
    #[arg(long, value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "", global = true)]
    pub(crate) json: Option<String>,
    /// Print ids only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print whole ids in text, not their shortest unique prefix
    #[arg(long = "ids", global = true)]
    pub(crate) whole_ids: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: Color,
    /// Operation id: running the same one again changes nothing
    #[arg(long, value_name = "ID", global = true, hide = true)]
    pub(crate) op: Option<String>,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Which rows a command reads.
#[derive(Args, Clone, Debug, Default)]
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
    Init(Init) "init" [] "Set up toft in this repository";
    Where(Nothing) "where" [] "Show the store, repository, worktree and agent in use, and why";
    Doctor(Doctor) "doctor" [] "Check that this installation works";
    Add(Add) "add" ["create", "new"] "Add issues";
    Edit(EditIssue) "edit" ["update", "set"] "Change issues: fields, labels, dependencies, comments";
    Ready(Ready) "ready" ["todo"] "List work that can start now";
    Claim(Claim) "claim" ["take", "next", "start"] "Claim a task under a lease";
    Save(Save) "save" ["checkpoint", "heartbeat", "renew"] "Save a checkpoint and renew the lease";
    Finish(Finish) "finish" ["done", "complete"] "Finish a claimed task: done, failed, release, handoff, waiting";
    Close(Close) "close" [] "Close issues, with a reason";
    Show(Show) "show" ["get", "view"] "Show an issue, task, workflow or agent";
    List(List) "list" ["ls", "issues"] "List and search issues and tasks";
    Graph(Graph) "graph" [] "Draw the plan: terminal, SVG, Mermaid, DOT";
    Status(Status) "status" ["st"] "Show who works on what, and what needs you";
    Top(Top) "top" ["tui", "ui"] "Watch agents and answer them in the terminal";
    Board(Board) "board" ["web"] "Watch agents and answer them in the browser";
    Logs(Logs) "logs" [] "Show what running agents say and do";
    Log(Log) "log" ["events", "history"] "Show the history of events";
    Flow(Flow) "flow" ["workflow", "flows"] "Manage workflows and templates";
    Ws(Ws) "ws" ["workspace", "workspaces", "worktree"] "Manage workspaces: one directory for each task";
    Diff(Diff) "diff" [] "Show the changes of an agent: its workspace against where it began";
    Land(LandArgs) "land" [] "Land finished work: merge it, check it, move the branch";
    Review(ReviewArgs) "review" [] "Review finished work: show it, approve it, or return it with comments";
    Run(Run) "run" [] "Run agents: claim tasks, start a command for each, record the results";
    Stop(Stop) "stop" ["kill"] "Stop one agent and release or park its task";
    Prime(Prime) "prime" [] "Print a briefing for an agent's session";
    Try(Try) "try" ["demo"] "Run a demo in a temporary directory";
    Sync(Sync) "sync" ["pull", "push"] "Exchange ledgers with other clones";
    Propose(Propose) "propose" [] "Propose an issue to another ledger";
    Withdraw(Withdraw) "withdraw" [] "Withdraw a proposal";
    Accept(Accept) "accept" [] "Accept a proposed issue";
    Reject(Reject) "reject" [] "Reject a proposed issue, with a reason";
    Move(Move) "move" ["mv"] "Move issues to another ledger";
    Purge(Purge) "purge" [] "Remove an issue's text from a ledger's history";
    Setup(Setup) "setup" [] "Connect toft to coding agents";
    Hook(Hook) "hook" [] "Internal: called by the hooks of coding agents";
    Mcp(Nothing) "mcp" [] "Serve the Model Context Protocol on standard input and output";
    Shell(Shell) "shell" [] "Print a shell function: tcd ID changes to an issue's workspace";
    Trust(Trust) "trust" [] "Allow this repository's setup commands to run in workspaces";
    Agent(Agent) "agent" ["agents"] "Manage agents and their messages";
    Answer(Answer) "answer" [] "Answer the question of a waiting task";
    Tell(Tell) "tell" [] "Tell the agent on an issue something while it works";
    Pause(Pause) "pause" [] "Pause agents: they finish what they hold, and claim nothing new";
    Resume(Resume) "resume" ["unpause"] "Resume agents that were paused";
    Assign(Assign) "assign" ["delegate"] "Assign an issue or task to an agent";
    Serve(Serve) "serve" [] "Serve the store to other machines over HTTP";
    Login(Login) "login" [] "Log in to a server";
    Join(Join) "join" [] "Let this machine work for a server";
    Token(TokenArgs) "token" ["tokens"] "Manage the tokens of a server";
    Repo(RepoArgs) "repo" ["repos"] "Manage the repositories of a server";
    Backup(Backup) "backup" [] "Back up the store to a file, or restore it";
    Migrate(Nothing) "migrate" [] "Upgrade the store to the schema of this version";
    Schema(Schema) "schema" [] "Print the JSON schemas of all calls";
    Gc(Gc) "gc" [] "Delete old history and messages, and free their space";
    Ledger(LedgerArgs) "ledger" ["ledgers"] "Manage the ledgers that this clone sees";
    Delete(Delete) "delete" ["rm"] "Delete an issue; restore brings it back";
    Restore(Restore) "restore" [] "Restore a deleted issue";
    Undo(Undo) "undo" [] "Undo your last operations, where that is safe";
    Redo(Redo) "redo" [] "Redo operations that you undid";
    Compact(Compact) "compact" [] "Compact ledgers and archive issues closed long ago";
    Import(Import) "import" [] "Import issues: beads, jsonl, markdown, caw, langgraph";
    Acp(Acp) "acp" [] "Internal: speaks the Agent Client Protocol with an agent of a runner";
    Checked(Nothing) "checked" [] "Internal: runs a check for a lander";
    Sandboxed(Sandboxed) "sandboxed" [] "Internal: runs a command in a sandbox";
    Reference(WriteTo) "reference" [] "Internal: writes the reference pages of the book";
    Man(WriteTo) "man" [] "Write man pages to a directory";
    Export(Export) "export" [] "Export issues: beads, jsonl, csv, schema";
}

/// Commands by what they are for, everyday ones first.
pub(crate) const GROUPS: [(&str, &[&str]); 9] = [
    ("Plan", &["add", "edit", "list", "show", "close", "graph", "assign", "delete", "restore", "undo", "redo"]),
    ("Work", &["ready", "claim", "save", "finish", "status", "top", "board", "answer", "log", "flow"]),
    ("Run agents", &["run", "logs", "stop", "tell", "pause", "resume", "agent", "prime", "setup", "mcp"]),
    ("Land", &["land", "review", "diff"]),
    ("Workspaces", &["ws", "shell", "trust"]),
    (
        "Share",
        &["sync", "ledger", "propose", "withdraw", "accept", "reject", "move", "purge", "import", "export", "compact"],
    ),
    ("Many machines", &["serve", "token", "repo", "login", "join"]),
    ("Admin", &["init", "where", "doctor", "backup", "migrate", "gc", "schema", "man"]),
    ("Learn", &["try", "help"]),
];

/// The name of a command, if the word is one.
pub(crate) fn known(word: &str) -> Option<&'static str> {
    TABLE.iter().map(|(name, _)| *name).find(|name| *name == word)
}

/// The commands with what each does, under headings.
fn grouped_commands() -> String {
    let about = |name: &str| match name {
        "help" => "Show help for a command",
        _ => TABLE.iter().find(|(known, _)| *known == name).map_or("", |(_, about)| about),
    };
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        names.iter().for_each(|name| text.push_str(&format!("  {name:<10}{}\n", about(name))));
        text.push('\n');
    }
    text.trim_end().to_owned()
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

    /// The socket of the runner, if this is a command of an agent in a sandbox or a container: the runner runs it.
    pub(crate) fn called_outside(&self) -> Option<toft::runner::SocketAddress> {
        let inside = !matches!(self, Self::Sandboxed(_) | Self::Acp(_) | Self::Checked(_));
        toft::runner::SocketAddress::of_runner().filter(|_| inside)
    }

    /// Whether it changes ledgers, workspaces or settings, which no transaction of the store covers.
    pub(crate) fn writes_beside_the_store(&self) -> bool {
        matches!(
            self,
            Self::Add(_)
                | Self::Edit(_)
                | Self::Close(_)
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
                | Self::Close(_)
                | Self::Show(_)
                | Self::List(_)
                | Self::Status(_)
                | Self::Delete(_)
                | Self::Restore(_)
        )
    }
}

/// Set up toft in this repository.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Set up a directory without version control
    #[arg(long)]
    pub(crate) no_vcs: bool,
    /// Keep issues in the working tree, in .toft/, to be reviewed and committed like code
    #[arg(long)]
    pub(crate) tree: bool,
    /// Plan in private: new issues go to your own ledger, and toft writes nothing to the repository
    #[arg(long)]
    pub(crate) contributor: bool,
    /// Return to the repository's own ledger: new issues go there
    #[arg(long, conflicts_with = "contributor")]
    pub(crate) maintainer: bool,
    /// With --contributor: repository for your private issues
    #[arg(long, value_name = "DIR", requires = "contributor")]
    pub(crate) planning: Option<PathBuf>,
    /// With --contributor: remote that has the project's ledger
    #[arg(long, value_name = "REMOTE", requires = "contributor")]
    pub(crate) upstream: Option<String>,
    /// With --contributor: do not install the pre-push hook that checks for private issues
    #[arg(long, requires = "contributor")]
    pub(crate) no_guard: bool,
    /// Do not prompt
    #[arg(long)]
    pub(crate) no_input: bool,
}

/// Who may do what, for `toft agent --help`.
fn rights() -> String {
    format!(
        "Rights by role; every role may do what is not listed. Your role is human unless you use --as or TOFT_AGENT, or run toft from a coding agent's shell.\n\n{}",
        toft::rights::table()
    )
}

#[derive(Args, Debug)]
pub(crate) struct Nothing {}

/// A priority: P0 to P4, or the number alone.
pub(crate) fn priority(text: &str) -> Result<u8, String> {
    let number = text.strip_prefix(['p', 'P']).unwrap_or(text).parse().ok();
    number.filter(|number| *number <= 4).ok_or_else(|| "use P0 (most urgent) to P4".to_owned())
}

/// How many rows a list has, unless its user says otherwise.
pub(crate) const ROWS: usize = 20;
/// The same for the tasks of a workflow.
pub(crate) const FLOW_ROWS: usize = 50;

/// A number above 0.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("`{text}` is not a number above 0"))
}

/// Manage workflows and templates.
#[derive(Args, Debug)]
pub(crate) struct Flow {
    #[command(subcommand)]
    pub(crate) command: FlowCommand,
}

/// Manage agents and their messages.
#[derive(Args, Debug)]
#[command(after_help = rights())]
pub(crate) struct Agent {
    #[command(subcommand)]
    pub(crate) command: AgentCommand,
}

/// Manage the tokens of a server: who may ask it what. Run it where the store is, or as an admin of the server.
#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// Manage the repositories of a server: from where machines clone them.
#[derive(Args, Debug)]
pub(crate) struct RepoArgs {
    #[command(subcommand)]
    pub(crate) command: RepoCommand,
}

/// Allow this repository's setup commands to run in workspaces. Without an option, shows the commands.
#[derive(Args, Debug)]
pub(crate) struct Trust {
    /// Trust these commands; changed commands must be trusted again
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Revoke the trust
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
}

/// Delete old history and messages, and free their space. Tasks, the newest checkpoint of each, unread messages and everything
/// about open tasks are kept.
#[derive(Args, Debug)]
#[command(
    after_help = "Default ages: events, attempts, checkpoints and removed workspaces 90d, messages and idle agents 30d, receipts 7d, unreferenced blobs 1d; [retention] in config.toml changes them. `toft ws gc` removes workspaces.\n\n\
    Examples:\n  toft gc                     # use the ages of [retention]\n  toft gc --older-than 30d    # use this age for everything"
)]
pub(crate) struct Gc {
    /// Delete old events, read messages, ended attempts, checkpoints of ended tasks, idle agents and receipts (the default)
    #[arg(long)]
    pub(crate) data: bool,
    /// Use this age instead of [retention]; agents are kept for at least a day, blobs for an hour
    #[arg(long, value_name = "DUR", value_parser = toft::time::parse_duration)]
    pub(crate) older_than: Option<std::time::Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_under_one_heading() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let visible = TABLE.iter().filter(|(_, about)| !about.starts_with("Internal")).map(|(name, _)| *name);
        let mut known: Vec<&str> = visible.chain(["help"]).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn help_of_a_command_begins_as_the_list_of_commands_says() {
        let mut cli = <Cli as clap::CommandFactory>::command();
        cli.build();
        for (name, about) in TABLE {
            let own = cli.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
            assert!(own.as_ref().is_some_and(|own| own.starts_with(about)), "{name}: {own:?}");
        }
    }

    #[test]
    fn priorities_are_typed_with_and_without_their_letter() {
        assert_eq!((priority("P1"), priority("p0"), priority("4")), (Ok(1), Ok(0), Ok(4)));
        assert!(priority("5").is_err() && priority("high").is_err());
    }
}
