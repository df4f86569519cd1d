//! Running agents, and briefing them.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use toft::time::parse_duration;

use super::positive;

/// Run agents: claim tasks, start a command for each in its own workspace, record what came of it.
#[derive(Args, Debug)]
#[command(
    after_help = "The command finds its brief on standard input and in the file $TOFT_BRIEF, and its task in $TOFT_TASK, $TOFT_FENCE,\n\
$TOFT_WORKSPACE, $TOFT_AGENT and $TOFT_STORE. It is done if it ends well and left a commit, or said so itself: with\n\
`toft finish`, or in the file $TOFT_REPORT as {\"outcome\":\"done\",\"message\":\"…\",\"no_change\":\"…\",\"cost\":0.1}.\n\
Ctrl-C lets what runs end; a second one ends it and gives it back.\n\n\
Examples:\n  \
toft run --slots 5 --agent claude              five Claude Code agents until you stop them\n  \
toft run --until-idle -- ./my-agent.sh         any command, until nothing is left to do\n  \
toft run --once -l rust --total 2h -- codex exec -"
)]
pub(crate) struct Run {
    /// Number of agents to run in parallel
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    pub(crate) slots: usize,
    /// Only rows with this label
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// What the agents can do; tasks may require it
    #[arg(long, value_name = "TAG")]
    pub(crate) can: Vec<String>,
    /// Run one task in each slot, then exit
    #[arg(long, conflicts_with = "until_idle")]
    pub(crate) once: bool,
    /// Exit when no work is left
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// A well-known agent: claude, codex, gemini, cursor, opencode, or one of [run.agents] in config.toml
    #[arg(long = "agent", value_name = "NAME", conflicts_with = "command")]
    pub(crate) recipe: Option<String>,
    /// Stop an agent that prints nothing for this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) idle: Option<Duration>,
    /// Stop an agent that runs this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) total: Option<Duration>,
    /// Lease duration; the runner renews it after a third
    #[arg(long, value_name = "DUR", default_value = "90s", value_parser = parse_duration)]
    pub(crate) ttl: Duration,
    /// How long an agent that is told to stop may take
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = parse_duration)]
    pub(crate) grace: Duration,
    /// Token budget of the brief
    #[arg(long, value_name = "TOKENS", default_value_t = toft::briefing::CONTEXT_TOKENS)]
    pub(crate) budget: usize,
    /// Start from this commit or branch; by default from the main checkout's
    #[arg(long, value_name = "REV")]
    pub(crate) base: Option<String>,
    /// Restrict where the agent can write; offline also blocks the network
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "files")]
    pub(crate) sandbox: Option<Confine>,
    /// With --sandbox: it may write here, too
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    pub(crate) allow: Vec<PathBuf>,
    /// The command, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Stop one agent now. Its runner ends it, with every process it started, and gives the task back. A hold that no runner
/// watches is revoked: nothing its holder writes counts from then on.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
toft stop tf-4k2m -m \"wrong branch\"      stop whoever works on this issue; others can claim it\n  \
toft stop ana-2 --park                   stop the agent in this slot; the task waits for you")]
pub(crate) struct Stop {
    /// An issue, a task, or the name of the agent
    pub(crate) id: String,
    /// Give the task back; it does not count as an attempt (the default)
    #[arg(long, conflicts_with = "park")]
    pub(crate) give_back: bool,
    /// Let the task fail for good; `toft flow retry` brings it back
    #[arg(long)]
    pub(crate) park: bool,
    /// Reason
    #[arg(short, long, value_name = "REASON", default_value = "")]
    pub(crate) message: String,
}

/// How tight a sandbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Confine {
    /// Writes only where the work is.
    Files,
    /// And no network.
    Offline,
}

/// A command in a sandbox that the kernel keeps up.
#[derive(Args, Debug)]
pub(crate) struct Sandboxed {
    /// Directory that the agent may write to
    #[arg(long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// Block the network
    #[arg(long)]
    pub(crate) offline: bool,
    /// The command
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

/// A demo that can be thrown away: five scripted agents build a village of forty issues in ten seconds.
#[derive(Args, Debug)]
pub(crate) struct Try {
    /// Where; must not exist. A temporary directory when left out
    #[arg(value_name = "DIR")]
    pub(crate) place: Option<PathBuf>,
    /// Number of agents
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub(crate) agents: usize,
}

/// What a session needs to begin; at most 1,500 tokens. Says nothing where there is no toft.
#[derive(Args, Debug)]
pub(crate) struct Prime {
    /// Letters in it stay unread
    #[arg(long)]
    pub(crate) peek: bool,
}
