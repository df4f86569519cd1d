//! The runner: claims work, gives it a workspace, briefs a command, watches it, and decides what came of it.
//!
//! `toft run` is a [`Supervisor`] with one child, the runner ([`Fleet`]), which has a child for each slot ([`Slot`]). A slot is
//! the parent of everything its agent starts, and its lease follows it: when a slot dies its task is free and the runner
//! ends what it left; when the runner or its supervisor dies every slot ends its agent, gives the task back and goes. Start
//! at [`Slot::run`].

mod attempt;
pub mod briefing;
mod files;
mod fleet;
pub mod hooks;
mod log;
mod news;
mod process;
mod record;
mod sandbox;
mod slot;
mod supervisor;

use std::time::Duration;

pub use self::{
    files::{AttemptLog, Attempts},
    fleet::{Fleet, News, Order, SLOT},
    process::{become_command, can_start, harness_process, ignores_hang_up, in_shell},
    sandbox::{Sandbox, enter as enter_sandbox},
    slot::Slot,
    supervisor::{SUPERVISOR, Supervisor, show_life},
};
use serde::{Deserialize, Serialize};

/// How a runner works.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What is started for each task.
    pub command: Vec<String>,
    /// Only tasks with all of these labels.
    pub labels: Vec<String>,
    /// What its agents can do.
    pub can: Vec<String>,
    /// Each slot does one task, and that is all.
    pub once: bool,
    /// Ends when nothing is ready, nothing is held, and nothing will be by itself.
    pub until_idle: bool,
    /// How long a lease lasts; renewed every third of it.
    pub ttl: Duration,
    /// A command that says nothing for so long is ended.
    pub idle: Option<Duration>,
    /// A command that takes so long is ended.
    pub total: Option<Duration>,
    /// A command that is told to end has so long to do it.
    pub grace: Duration,
    /// What a command may cost to read.
    pub budget: usize,
    /// What the command may write.
    pub sandbox: Option<Sandbox>,
    /// What the workspace starts from, if not where the main checkout is.
    pub base: Option<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            labels: Vec::new(),
            can: Vec::new(),
            once: false,
            until_idle: false,
            ttl: Duration::from_secs(90),
            idle: None,
            total: None,
            grace: Duration::from_secs(5),
            budget: briefing::CONTEXT_TOKENS,
            sandbox: None,
            base: None,
        }
    }
}

/// What a slot tells, as it happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "told")]
pub enum SlotEvent {
    /// It lives.
    Alive {
        /// By when, on this machine's clock, what it runs is killed if its lease is not renewed.
        until: Option<u64>,
    },
    /// It looks for work.
    Waiting,
    /// It took a task.
    Took {
        /// Which.
        task: String,
        /// For which issue.
        issue: Option<String>,
        /// What that is called.
        title: String,
        /// Which attempt it is, from 1 on.
        attempt: u32,
    },
    /// Something goes on before the command starts.
    Step {
        /// What.
        text: String,
    },
    /// The command said something.
    Said {
        /// What, without secrets.
        text: String,
    },
    /// A task ended, for now.
    Ended {
        /// Which.
        task: String,
        /// For which issue.
        issue: Option<String>,
        /// How: done, failed, released, handed off, waiting.
        how: String,
        /// In words.
        message: String,
        /// It will be tried no more; a person is asked.
        parked: bool,
        /// How long the command ran.
        ran_ms: u64,
    },
    /// Something is in the way, and is tried again.
    Trouble {
        /// What.
        text: String,
    },
}
