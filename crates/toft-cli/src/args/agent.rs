//! Agents and their messages.

use std::time::Duration;

use clap::{Args, Subcommand};
use toft::time::parse_duration;

use super::{positive, work::Hold};

/// The kind of a message, unless its sender says another.
const STATUS: &str = "status";

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Register an agent
    Register(Register),
    /// Registered agents: what each is doing, and what it holds
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
    /// Pause an agent: it claims nothing new
    Pause {
        /// The agent; yourself when left out
        #[arg(value_name = "AGENT")]
        name: Option<String>,
    },
    /// Resume a paused agent
    Resume {
        /// The agent; yourself when left out
        #[arg(value_name = "AGENT")]
        name: Option<String>,
    },
    /// Unregister an agent that holds nothing; what was assigned to it is free again
    #[command(alias = "rm", alias = "unregister")]
    Remove {
        /// The agent; yourself when left out
        #[arg(value_name = "AGENT")]
        name: Option<String>,
    },
    /// Answer what a waiting task asked, or say that its command succeeded
    Answer {
        /// The question (gt_…) or the task that waits
        id: String,
        /// The answer
        text: String,
    },
}

/// Register an agent.
#[derive(Args, Debug)]
pub(crate) struct Register {
    /// Its name; a readable one is made up when left out
    pub(crate) name: Option<String>,
    /// worker, coordinator, human
    #[arg(long)]
    pub(crate) role: Option<String>,
    /// Capability of the agent
    #[arg(long = "can", value_name = "TAG")]
    pub(crate) capabilities: Vec<String>,
    /// What runs it
    #[arg(long)]
    pub(crate) runtime: Option<String>,
}

/// Send a message.
#[derive(Args, Debug)]
pub(crate) struct Send {
    /// human, all, an agent, role:worker, a task (its holder), a workflow (everyone on it)
    pub(crate) to: String,
    /// What it says
    pub(crate) text: String,
    /// What it is about, in one line
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// assignment, status, question, answer, broadcast
    #[arg(long, default_value = STATUS)]
    pub(crate) kind: String,
    /// Priority; P0 is the most urgent
    #[arg(short, long, value_name = "P0..P4", value_parser = super::priority)]
    pub(crate) priority: Option<u8>,
    /// The message this one answers
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) reply_to: Option<String>,
    /// Speak as the holder of this task
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<String>,
    /// The recipient is to confirm
    #[arg(long)]
    pub(crate) needs_ack: bool,
    /// Skip the task after this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

impl Send {
    /// A message with nothing but its text.
    pub(crate) fn plain(to: String, text: String) -> Self {
        Self {
            to,
            text,
            subject: None,
            kind: STATUS.to_owned(),
            priority: None,
            reply_to: None,
            task: None,
            needs_ack: false,
            expires: None,
            hold: Hold::default(),
        }
    }
}

/// Read your messages.
#[derive(Args, Debug)]
pub(crate) struct Inbox {
    /// What was sent to the person in charge
    #[arg(long)]
    pub(crate) human: bool,
    /// Read messages, too
    #[arg(long, conflicts_with = "peek")]
    pub(crate) all: bool,
    /// Look without marking anything as read
    #[arg(long)]
    pub(crate) peek: bool,
    /// Confirm this message
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) ack: Option<String>,
    /// Wait for a message
    #[arg(long, value_name = "DUR", num_args = 0..=1, require_equals = true, default_missing_value = "30s", value_parser = parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Maximum number of rows
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
}

/// Assign an issue or task to an agent.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft assign tf-a41c blue-heron   only blue-heron claims it, before anything else
  toft assign tf-a41c --none       anyone may claim it again")]
pub(crate) struct Assign {
    /// The issue or task; nobody may hold it
    pub(crate) id: String,
    /// The agent
    #[arg(value_name = "AGENT", required_unless_present = "none")]
    pub(crate) to: Option<String>,
    /// Remove the assignment
    #[arg(long, conflicts_with = "to")]
    pub(crate) none: bool,
}
