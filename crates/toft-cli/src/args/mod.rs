//! What can be typed.

mod agent;
mod commands;
mod complete;
mod fleet;
mod flow;
mod land;
mod page;
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
pub(crate) use commands::parse;

pub(crate) use self::{
    agent::{AgentCommand, Answer, Inbox, Pause, Register, Send, Tell},
    fleet::{CreateToken, Join, Login, Serve, TokenCommand},
    flow::{EditFlow, FlowCommand, NewFlow, One, Retry, TaskFields, TemplateCommand},
    land::{LandArgs, LandCommand, LineComment, ReviewArgs, ReviewDecision},
    plan::{Add, Close, Delete, EditIssue, Export, Fields, Import, LedgerArgs, LedgerCommand, Reopen, Undo},
    run::{Acp, Prime, Run, SandboxMode, Sandboxed, Stop, Try},
    setup::{Hook, Setup},
    share::{Accept, Doctor, Move, Propose, Sync},
    upkeep::{Backup, BackupCommand, WriteTo},
    work::{Board, Claim, Finish, GraphFormat, Hold, IssueOrder, List, Log, Logs, Ready, Save, Show, Status, Top},
    ws::{CreateWs, From, GcWs, ListWs, RestoreWs, ShellKind, Ws, WsCommand},
};

/// The footer of the pages of `toft help WORD`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found or ambiguous, 4 not allowed, 5 conflict,
6 nothing to do, 7 busy or timed out: retry, 8 needs doctor.";

const FIRST_SCREEN_FOOTER: &str = "\
Watch: toft top, toft board. Answer: toft answer ID \"…\".
More:  toft help issues|agents|plans|share|fleet|admin, toft COMMAND --help
Everywhere: -C DIR, --as NAME, --store STORE, --json, -q, --color, -h, -V";

/// toft: run many coding agents, and merge only what passes your tests
#[derive(Debug, Parser)]
#[command(
    name = "toft",
    bin_name = "toft",
    version,
    help_template = "{about}\n\nUsage: toft COMMAND [OPTIONS]             First time? toft try (a demo)\n\n{before-help}",
    before_help = format!("{}\n\n{FIRST_SCREEN_FOOTER}", listed(&EVERYDAY_COMMANDS)),
    // For the man page: the first screen has no place for it.
    after_help = EXIT_CODES,
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
    #[arg(hide_short_help = true, short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Store: repo, worktree, global, a path, or postgres://…
    #[arg(hide_short_help = true, long, value_name = "STORE", global = true)]
    pub(crate) store: Option<String>,
    /// Agent name [default: TOFT_AGENT, or your user name]
    #[arg(hide_short_help = true, long = "as", value_name = "AGENT", global = true)]
    pub(crate) agent: Option<String>,
    /// Print JSON; with FIELDS, only those fields of each row
    #[arg(hide_short_help = true, long, value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "", global = true)]
    pub(crate) json: Option<String>,
    /// Print ids only
    #[arg(hide_short_help = true, short, long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colours
    #[arg(hide_short_help = true, long, value_name = "WHEN", default_value = "auto", global = true)]
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
#[derive(Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Only the worktree of this name; `.` is this one
    #[arg(long, value_name = "NAME")]
    pub(crate) worktree: Option<String>,
    /// Every repository of every registered store
    #[arg(long)]
    pub(crate) all_repos: bool,
}

commands! {
    Init(Init) "init" [] "Set up toft in this repository";
    Where(Nothing) "where" [] "Internal: shows the store, repository, worktree and agent in use";
    Doctor(Doctor) "doctor" [] "Check that this installation works";
    Add(Add) "add" ["new"] "Add issues";
    Edit(EditIssue) "edit" [] "Change issues: fields, labels, dependencies, comments";
    Ready(Ready) "ready" [] "List work that can start now";
    Claim(Claim) "claim" ["next", "start"] "Claim a task under a lease";
    Save(Save) "save" [] "Save a checkpoint and renew the lease";
    Finish(Finish) "finish" ["done"] "Finish a claimed task: done, failed, release, handoff, waiting";
    Close(Close) "close" [] "Close issues, or reject proposals, with a reason";
    Reopen(Reopen) "reopen" [] "Reopen issues that were closed, deferred or deleted";
    Show(Show) "show" [] "Show an issue, task, workflow or agent";
    List(List) "list" ["ls"] "List and search issues and tasks";
    Status(Status) "status" [] "Show who works on what, and what needs you";
    Top(Top) "top" [] "Watch agents and answer them in the terminal";
    Board(Board) "board" [] "Watch agents and answer them in the browser";
    Logs(Logs) "logs" [] "Show what running agents say and do";
    Log(Log) "history" [] "Show the history of events";
    Retry(Retry) "retry" [] "Retry failed work";
    Flow(Flow) "flow" [] "Manage workflows and templates";
    Ws(Ws) "ws" [] "Manage workspaces: one directory for each task";
    Land(LandArgs) "land" [] "Land finished work: merge it, check it, move the branch";
    Review(ReviewArgs) "review" [] "Review finished work: show it, approve it, or return it with comments";
    Run(Run) "run" [] "Run agents: claim tasks, start a command for each, record the results";
    Stop(Stop) "stop" [] "Stop one agent and release or park its task";
    Prime(Prime) "prime" [] "Internal: prints a briefing for an agent's session";
    Try(Try) "try" [] "Run a demo in a temporary directory";
    Sync(Sync) "sync" [] "Exchange ledgers with other clones";
    Propose(Propose) "propose" [] "Propose an issue to another ledger";
    Accept(Accept) "accept" [] "Accept a proposed issue";
    Move(Move) "move" [] "Move issues to another ledger";
    Setup(Setup) "setup" [] "Connect toft to coding agents";
    Hook(Hook) "hook" [] "Internal: called by the hooks of coding agents";
    Mcp(Nothing) "mcp" [] "Internal: serves the Model Context Protocol on standard input and output";
    Trust(Trust) "trust" [] "Allow this repository's setup commands to run in workspaces";
    Agent(Agent) "agent" [] "Manage agents and their messages";
    Answer(Answer) "answer" [] "Answer the question of a waiting task";
    Tell(Tell) "tell" [] "Tell the agent on an issue something while it works";
    Pause(Pause) "pause" [] "Pause agents once they have finished what they hold; --off ends it";
    Serve(Serve) "serve" [] "Serve the store to other machines over HTTP";
    Login(Login) "login" [] "Log in to a server";
    Join(Join) "join" [] "Internal: trades a code for a token, as `toft login --code` does";
    Token(TokenArgs) "token" [] "Manage the tokens of a server";
    Backup(Backup) "backup" [] "Back up the store to a file, or restore it";
    Gc(Gc) "gc" [] "Delete old history and messages, and free their space";
    Ledger(LedgerArgs) "ledger" [] "Manage the ledgers that this clone sees";
    Delete(Delete) "delete" ["rm"] "Delete an issue; reopen brings it back";
    Undo(Undo) "undo" [] "Undo your last operations, where that is safe";
    Import(Import) "import" [] "Import issues: beads, jsonl, markdown, caw, langgraph";
    Acp(Acp) "acp" [] "Internal: speaks the Agent Client Protocol with an agent of a runner";
    Checked(Nothing) "checked" [] "Internal: runs a check for a lander";
    Sandboxed(Sandboxed) "sandboxed" [] "Internal: runs a command in a sandbox";
    Reference(WriteTo) "reference" [] "Internal: writes the reference pages of the book";
    Man(WriteTo) "man" [] "Internal: writes man pages to a directory";
    Export(Export) "export" [] "Export issues: beads, jsonl, csv, schema";
}

/// A heading with the commands below it.
type Group = (&'static str, &'static [&'static str]);

/// The commands of a first evening: all that `toft --help` lists.
pub(crate) const EVERYDAY_COMMANDS: [Group; 3] = [
    ("Plan", &["init", "add", "list", "show", "edit", "close"]),
    ("Run and merge", &["run", "status", "review", "land", "ws", "sync"]),
    ("Work as an agent", &["claim", "save", "finish"]),
];

/// The others: `toft help WORD` lists those below the word.
pub(crate) const HELP_TOPICS: [Group; 6] = [
    ("issues", &["ready", "reopen", "delete", "undo"]),
    ("agents", &["top", "board", "logs", "answer", "tell", "stop", "retry", "pause", "agent", "setup"]),
    ("plans", &["flow", "history"]),
    ("share", &["ledger", "propose", "accept", "move", "import", "export"]),
    ("fleet", &["serve", "token", "login"]),
    ("admin", &["doctor", "backup", "gc", "trust", "try", "help"]),
];

/// The page of `toft help WORD`, if the word is a topic.
pub(crate) fn topic(word: &str) -> Option<String> {
    let topic = HELP_TOPICS.iter().find(|(name, _)| *name == word)?;
    Some(format!("{}\n\nOptions and examples: toft COMMAND --help\n{EXIT_CODES}", listed(&[*topic])))
}

/// The name of a command, if the word is one.
pub(crate) fn known(word: &str) -> Option<&'static str> {
    TABLE.iter().map(|(name, _)| *name).find(|name| *name == word)
}

/// Commands with what each does, under headings.
fn listed(groups: &[Group]) -> String {
    let about = |name: &str| match name {
        "help" => "Show help for a command",
        _ => TABLE.iter().find(|(known, _)| *known == name).map_or("", |(_, about)| about),
    };
    let lines = |(heading, names): &Group| {
        let mut first = heading.to_string();
        first[..1].make_ascii_uppercase();
        let rows = names.iter().map(|name| format!("\n  {name:<9}{}", about(name)));
        first + &rows.collect::<String>()
    };
    groups.iter().map(lines).collect::<Vec<_>>().join("\n")
}

impl Command {
    /// Files that it reads; `-` is standard input.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Flow(Flow { command: FlowCommand::New(NewFlow { file: Some(file), .. }) }) => vec![file.clone()],
            Self::Flow(Flow { command: FlowCommand::Edit(EditFlow { file: Some(file), .. }) }) => vec![file.clone()],
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
                | Self::Reopen(_)
                | Self::Retry(_)
                | Self::Delete(_)
                | Self::Undo(_)
                | Self::Import(_)
                | Self::Move(_)
                | Self::Propose(_)
                | Self::Accept(_)
                | Self::Sync(_)
                | Self::Ledger(_)
                | Self::Gc(_)
                | Self::Ws(_)
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
                | Self::Reopen(_)
                | Self::Show(_)
                | Self::List(_)
                | Self::Status(_)
                | Self::Delete(_)
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
    /// With a server: where machines of the fleet clone this repository from, each with its own key; an empty one is nowhere
    #[arg(long, value_name = "URL", conflicts_with_all = ["tree", "contributor", "maintainer"])]
    pub(crate) clone_url: Option<String>,
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
    after_help = "Default ages: events, attempts, checkpoints and removed workspaces 90d, messages and idle agents 30d, receipts 7d, unreferenced blobs 1d; `keep` in config.toml changes those of 90d. `toft ws gc` removes workspaces.\n\n\
    Examples:\n  toft gc                     # use these ages\n  toft gc --older-than 30d    # use this age for everything\n  toft gc --ledgers           # compact ledgers instead, and archive issues closed long ago"
)]
pub(crate) struct Gc {
    /// Delete old events, read messages, ended attempts, checkpoints of ended tasks, idle agents and receipts (the default)
    #[arg(long)]
    pub(crate) data: bool,
    /// Use this age for everything; agents are kept for at least a day, blobs for an hour
    #[arg(long, value_name = "DUR", value_parser = toft::time::parse_duration)]
    pub(crate) older_than: Option<std::time::Duration>,
    /// Compact ledgers: one line for each issue; issues that were closed long ago go to the archive
    #[arg(long, conflicts_with_all = ["data", "older_than"])]
    pub(crate) ledgers: bool,
    /// With --ledgers: archive issues that were closed longer ago than this
    #[arg(long, value_name = "DUR", default_value = "14d", requires = "ledgers", value_parser = toft::time::parse_duration)]
    pub(crate) archive_after: std::time::Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_under_one_heading() {
        let groups = EVERYDAY_COMMANDS.iter().chain(&HELP_TOPICS);
        let mut grouped: Vec<&str> = groups.flat_map(|(_, names)| names.iter().copied()).collect();
        let visible = TABLE.iter().filter(|(_, about)| !about.starts_with("Internal")).map(|(name, _)| *name);
        let mut known: Vec<&str> = visible.chain(["help"]).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn the_first_screen_of_help_is_short() {
        let help = <Cli as clap::CommandFactory>::command().render_help().to_string();
        assert!(help.lines().count() <= 30 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert!(EVERYDAY_COMMANDS.iter().map(|(_, names)| names.len()).sum::<usize>() <= 18);
    }

    #[test]
    fn help_of_a_command_begins_as_the_list_of_commands_says() {
        let mut cli = <Cli as clap::CommandFactory>::command();
        cli.build();
        for (name, about) in TABLE.iter().filter(|(_, about)| !about.starts_with("Internal")) {
            let own = cli.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
            assert!(own.as_ref().is_some_and(|own| own.starts_with(about)), "{name}: {own:?}");
        }
    }

    #[test]
    fn priorities_are_typed_with_and_without_their_letter() {
        assert_eq!((priority("P1"), priority("p0"), priority("4")), (Ok(1), Ok(0), Ok(4)));
        assert!(priority("5").is_err() && priority("high").is_err());
    }

    #[test]
    fn typed_words_parse_as_with_all_commands() {
        for line in [
            "ready",
            "ls --all",
            "-C list ready -l db",
            "--as claim next",
            "add list -p 1",
            "help",
            "ready --help",
            "nope",
            "claim nope nope",
        ] {
            let words: Vec<std::ffi::OsString> =
                std::iter::once("toft").chain(line.split(' ')).map(Into::into).collect();
            let shown = |parsed: Result<Cli, clap::Error>| match parsed {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown(parse(&words)), shown(Cli::try_parse_from(&words)), "{line}");
        }
    }
}
