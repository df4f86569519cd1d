//! Agents and their messages.

use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use toft::time::parse_duration;

use super::{complete, positive, work::Hold};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent
    Register(Register),
    /// List registered agents: what each is doing, and what it holds
    #[command(alias = "ls")]
    List {
        /// Include agents that were unregistered
        #[arg(long)]
        all: bool,
    },
    /// Send a message
    #[command(alias = "message")]
    Send(Send),
    /// Read your messages
    Inbox(Inbox),
    /// Unregister an agent that holds nothing; anyone may claim what was assigned to it
    #[command(alias = "rm", alias = "unregister")]
    Remove {
        /// Agent [default: yourself]
        #[arg(value_name = "AGENT")]
        name: Option<String>,
    },
}

/// Answer the question of a waiting task, or report that its command succeeded.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft status                      # lists open questions
  toft answer tf-a41c \"Stripe\"     # the task goes back to the queue, with the answer")]
pub(crate) struct Answer {
    /// Issue or task that waits, or its question (gt_…)
    #[arg(add = ArgValueCompleter::new(complete::issues))]
    pub(crate) id: String,
    /// Answer
    pub(crate) text: String,
}

/// Tell the agent on an issue something while it works.
#[derive(Args, Debug)]
#[command(
    after_help = "The agent gets it at its next tool call if it has toft's hooks (Claude Code under `toft run` has them), else with its next \
`toft save`. What it did not read when its attempt ends is part of the next attempt's brief.\n\n\
Examples:\n  \
toft tell tf-4k2m \"use the new schema\"        # the agent on this issue\n  \
toft tell ana-2 \"commit what you have\" --wait 2m"
)]
pub(crate) struct Tell {
    /// Issue, task, or name of the agent
    #[arg(add = ArgValueCompleter::new(complete::issues))]
    pub(crate) id: String,
    /// Text
    pub(crate) text: String,
    /// How long to wait for the delivery
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = parse_duration)]
    pub(crate) wait: Duration,
}

/// Pause agents once they have finished what they hold; --off ends it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
toft pause              # the agents of your runner: NAME-1, NAME-2, …\n  \
toft pause bob          # those of the runner bob\n  \
toft pause --off bob-2  # one of them goes on\n  \
toft pause --machine build-7 -m \"a new disk tonight\"")]
pub(crate) struct Pause {
    /// Runner or agent [default: your own runner]
    pub(crate) name: Option<String>,
    /// All agents of this machine, by its host name
    #[arg(long, value_name = "MACHINE", conflicts_with = "name")]
    pub(crate) machine: Option<String>,
    /// Why, for others who look
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Resume: they claim again, also an agent that rests because its provider refused it
    #[arg(long, conflicts_with = "message")]
    pub(crate) off: bool,
}

/// Register an agent.
#[derive(Args, Debug)]
pub(crate) struct Register {
    /// Name [default: a readable one is generated]
    pub(crate) name: Option<String>,
    /// Role: worker, coordinator or human
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Capability of the agent, for tasks that require it; repeatable
    #[arg(long = "can", value_name = "TAG")]
    pub(crate) capabilities: Vec<String>,
    /// Program that runs the agent, such as claude or codex
    #[arg(long)]
    pub(crate) runtime: Option<String>,
}

/// Send a message.
#[derive(Args, Debug)]
pub(crate) struct Send {
    /// Recipient: human, all, an agent, role:worker, a task (its holder), or a workflow (everyone on it)
    pub(crate) to: String,
    /// Text of the message
    pub(crate) text: String,
    /// Subject
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Kind: assignment, status, question, answer or broadcast
    #[arg(long, default_value = "status")]
    pub(crate) kind: String,
    /// Priority; P0 is the most urgent
    #[arg(short, long, value_name = "P0..P4", value_parser = super::priority)]
    pub(crate) priority: Option<u8>,
    /// Message that this one replies to
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) reply_to: Option<String>,
    /// Send as the holder of this task
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// Ask the recipient to confirm the message
    #[arg(long)]
    pub(crate) needs_ack: bool,
    /// Do not deliver the message if it is not read within this time
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// Read your messages.
#[derive(Args, Debug)]
pub(crate) struct Inbox {
    /// Read the messages that were sent to `human`
    #[arg(long)]
    pub(crate) human: bool,
    /// Include messages that were read before
    #[arg(long, conflicts_with = "peek")]
    pub(crate) all: bool,
    /// Do not mark messages as read
    #[arg(long)]
    pub(crate) peek: bool,
    /// Confirm a message
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) ack: Option<String>,
    /// Wait for a message
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Maximum number of rows
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
}
