//! Running agents, and briefing them.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use toft::time::parse_duration;

use super::positive;

/// Run agents: claim tasks, start a command for each, record the results.
#[derive(Args, Debug)]
#[group(skip)]
#[command(
    group = clap::ArgGroup::new("confined").args(["sandbox", "container"]).multiple(true),
    after_help = "A command gets its brief on standard input. Its task is done when it made a commit and exits with 0, or by `toft \
finish`. The first Ctrl-C lets agents finish, the second stops them.\n\n\
Examples:\n  \
toft run --slots 5 --agent claude              # five Claude Code agents, until you stop them\n  \
toft run --until-idle -- ./my-agent.sh         # any command, until no work is left\n  \
toft run --once -l rust --total 2h -- codex exec -"
)]
pub(crate) struct Run {
    /// Number of agents to run in parallel
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    pub(crate) slots: usize,
    /// Repository to work in, instead of this one; repeatable
    #[arg(long = "repo", value_name = "DIR")]
    pub(crate) repositories: Vec<PathBuf>,
    /// Work in every repository of the server that has an address to clone from (toft init --clone-url), in clones that toft makes and
    /// keeps up to date
    #[arg(hide_short_help = true, long, conflicts_with = "repositories")]
    pub(crate) clone: bool,
    /// Claim only tasks with this label; repeat to require several
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Capability of these agents, for tasks that require it; repeatable
    #[arg(hide_short_help = true, long, value_name = "TAG")]
    pub(crate) can: Vec<String>,
    /// Run one task in each slot, then exit; exit code 6 if nothing is ready
    #[arg(long, conflicts_with = "until_idle")]
    pub(crate) once: bool,
    /// Exit when no work is left
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Land finished work as it goes, as `toft land` does
    #[arg(long)]
    pub(crate) land: bool,
    /// claude, codex, gemini, cursor, opencode, acp:NAME, or one of your own
    #[arg(long = "agent", value_name = "NAME", conflicts_with = "command")]
    pub(crate) recipe: Option<String>,
    /// Stop an agent that prints nothing for this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) idle: Option<Duration>,
    /// Stop an agent that runs longer than this
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) total: Option<Duration>,
    /// Claim nothing new once the run would cost more, as agents report it
    #[arg(long, value_name = "USD", value_parser = amount)]
    pub(crate) max_cost: Option<f64>,
    /// Claim nothing new once the run would use more tokens than this
    #[arg(hide_short_help = true, long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Lease duration; the runner renews the lease after a third of it
    #[arg(hide_short_help = true, long, value_name = "DUR", default_value = "90s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,
    /// Time between SIGTERM and SIGKILL when an agent is stopped
    #[arg(hide_short_help = true, long, value_name = "DUR", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Token budget of the brief
    #[arg(hide_short_help = true, long, value_name = "TOKENS", default_value_t = toft::briefing::CONTEXT_TOKENS)]
    pub(crate) budget: usize,
    /// Commit or branch to start from [default: the main checkout's HEAD]
    #[arg(hide_short_help = true, long, value_name = "REV")]
    pub(crate) base: Option<String>,
    /// Confine: files, offline (no network), strict (no homes), landlock
    #[arg(long, value_name = "WHAT", hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "files")]
    pub(crate) sandbox: Option<SandboxMode>,
    /// With --sandbox or --in: additional path that the agent may write to; repeatable
    #[arg(hide_short_help = true, long, value_name = "PATH", requires = "confined")]
    pub(crate) allow: Vec<PathBuf>,
    /// With --sandbox: path that the agent may read though it is hidden; repeatable
    #[arg(hide_short_help = true, long, value_name = "PATH", requires = "sandbox", conflicts_with = "container")]
    pub(crate) allow_read: Vec<PathBuf>,
    /// With --sandbox or --in: host that the agent may reach, as NAME or *.NAME, and no other; repeatable
    #[arg(hide_short_help = true, long, value_name = "HOST", requires = "confined")]
    pub(crate) allow_host: Vec<String>,
    /// Run each agent in podman, docker, or behind this command
    #[arg(long = "in", value_name = "CONTAINER", conflicts_with = "sandbox")]
    pub(crate) container: Option<String>,
    /// With --in podman or docker: image [default: run.container.image]
    #[arg(hide_short_help = true, long, value_name = "IMAGE", requires = "container")]
    pub(crate) image: Option<String>,
    /// With --sandbox or --in: no network
    #[arg(hide_short_help = true, long, requires = "confined", conflicts_with = "allow_host")]
    pub(crate) offline: bool,
    /// Command with its arguments
    #[arg(last = true, hide_short_help = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

fn amount(text: &str) -> Result<f64, String> {
    let amount = text.trim_start_matches('$').parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
    amount.ok_or_else(|| format!("`{text}` is not an amount; write 20 or 2.50"))
}

/// Stop one agent and release or park its task. Its runner stops every process that the agent started. If no runner manages the
/// agent, toft revokes its lease and rejects its later writes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
toft stop tf-4k2m -m \"wrong branch\"      # stop the agent on this issue; others can claim it\n  \
toft stop ana-2 --park                   # stop the agent in this slot; the task waits for you")]
pub(crate) struct Stop {
    /// Issue, task, or name of the agent
    pub(crate) id: String,
    /// Release the task; the attempt is not counted (the default)
    #[arg(long = "release", alias = "give-back", conflicts_with = "park")]
    pub(crate) give_back: bool,
    /// Fail the task; `toft retry` reopens it
    #[arg(long)]
    pub(crate) park: bool,
    /// Reason
    #[arg(short, long, value_name = "REASON", default_value = "")]
    pub(crate) message: String,
}

/// How tight a sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxMode {
    /// Only the workspace is writable.
    Files,
    /// The same, without a network.
    Offline,
    /// The same as files, and homes are hidden; add --offline or --allow-host for the network.
    Strict,
    /// A guard instead, no boundary: the kernel's rules against writing elsewhere.
    Landlock,
}

/// Internal: runs a command in a sandbox.
#[derive(Args, Debug)]
pub(crate) struct Sandboxed {
    /// Enforce the rules below with Landlock
    #[arg(long)]
    pub(crate) landlock: bool,
    /// Path that the agent may write to; repeatable
    #[arg(long, value_name = "PATH", requires = "landlock")]
    pub(crate) write: Vec<PathBuf>,
    /// Block TCP
    #[arg(long, requires = "landlock")]
    pub(crate) offline: bool,
    /// Reach hosts through the runner's proxy
    #[arg(long)]
    pub(crate) proxy: bool,
    /// End with the attempt
    #[arg(long)]
    pub(crate) hold: bool,
    /// Command
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// Internal: speaks the Agent Client Protocol with an agent of a runner.
#[derive(Args, Debug)]
pub(crate) struct Acp {
    /// Session that goes on
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
    /// Command of the agent
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// Run a demo in a temporary directory: five scripted agents work on forty issues.
#[derive(Args, Debug)]
pub(crate) struct Try {
    /// Directory to create [default: a temporary directory]
    #[arg(value_name = "DIR")]
    pub(crate) place: Option<PathBuf>,
    /// Number of agents
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub(crate) agents: usize,
}

/// Print a briefing for an agent's session, at most 1,500 tokens. Prints nothing where toft is not set up.
#[derive(Args, Debug)]
pub(crate) struct Prime {
    /// Do not mark the messages in it as read
    #[arg(long)]
    pub(crate) peek: bool,
}
