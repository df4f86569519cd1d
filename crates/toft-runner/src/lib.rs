//! The runner: claims tasks, provides workspaces, briefs and watches commands, and decides about the outcome.
//!
//! `toft run` is a [`Supervisor`] with one child, the runner ([`Fleet`]), which has a child for each slot ([`Slot`]). A
//! slot is the parent of everything that its agent starts, and its lease follows it. When a slot dies, its task is free
//! and the runner ends the remaining processes; when the runner or its supervisor dies, every slot ends its agent,
//! releases the task and exits. Start at [`Slot::run`].

mod acp;
mod attempt;
pub mod briefing;
mod budget;
mod capacity;
mod check;
mod container;
mod files;
mod fleet;
pub mod hooks;
mod log;
mod log_sender;
mod process;
mod proxy;
mod record;
mod sandbox;
mod slot;
mod slot_events;
mod socket;
mod supervisor;
mod tail;

use std::{collections::BTreeMap, time::Duration};

pub use self::{
    acp::{AcpEnd, AcpPrompt, prompt as prompt_over_acp},
    budget::BudgetMeter,
    check::{CheckEnd, CheckOrder, CheckProcess, perform_check},
    container::{Container, ContainerKind},
    files::{AttemptLog, Attempts, write_report},
    fleet::{Fleet, Order, RunnerEvent, SLOT},
    process::{
        ProgramOutput, ask_program, become_command, call, can_start, confined_command, harness_process,
        ignores_hang_up, in_shell, output, program,
    },
    proxy::{forward as forward_to_proxy, is_host},
    sandbox::{LandlockRules, Network, Sandbox, enter as enter_landlock},
    slot::Slot,
    socket::{CONFINED, SocketAddress, call_outside, end_with_parent, wait_for_end},
    supervisor::{SUPERVISOR, Supervisor, show_life},
    tail::{LogTail, RunningLog},
};
use serde::{Deserialize, Serialize};
use toft_core::time::Timestamp;
use toft_session::recipe::UsageLimit;

/// How a runner works.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The name of the agent that it starts: its limits are remembered under it.
    pub agent: String,
    /// The command to start for each task.
    pub command: Vec<String>,
    /// The command that continues the conversation `{session}`; empty if there is none.
    pub resume: Vec<String>,
    /// Only tasks with all of these labels.
    pub labels: Vec<String>,
    /// The capabilities of its agents.
    pub can: Vec<String>,
    /// Each slot works on one task only.
    pub once: bool,
    /// Ends when nothing is ready, nothing is held, and nothing will become ready by itself.
    pub until_idle: bool,
    /// Duration of a lease; renewed every third of it.
    pub ttl: Duration,
    /// A command without output for this long is ended.
    pub idle: Option<Duration>,
    /// A command that runs for this long is ended.
    pub total: Option<Duration>,
    /// How long a command has to end after it was asked to.
    pub grace: Duration,
    /// Token budget of the brief.
    pub budget: usize,
    /// The sandbox of the command.
    pub sandbox: Option<Sandbox>,
    /// The container of the command, instead of a sandbox.
    pub container: Option<Container>,
    /// How many units there are of each capacity.
    pub capacity: BTreeMap<String, u32>,
    /// What all attempts at one task may use together.
    pub task_limit: UsageLimit,
    /// The start commit of workspaces, if not that of the main checkout.
    pub base: Option<String>,
}

impl Rules {
    /// The network of a command that reaches toft through a socket only; nothing if it is not confined.
    fn confined(&self) -> Option<&Network> {
        let container = self.container.as_ref().map(|container| &container.network);
        container.or_else(|| self.sandbox.as_ref().map(|sandbox| &sandbox.network))
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            agent: String::new(),
            command: Vec::new(),
            resume: Vec::new(),
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
            container: None,
            capacity: BTreeMap::new(),
            task_limit: UsageLimit::default(),
            base: None,
        }
    }
}

/// Lands finished work in a slot, between two tasks.
pub trait SlotLander {
    /// Lands what is ready in the repository of a session, unless another lander does.
    fn land(
        &self,
        work: toft_work::Work<'_>,
        stop: &std::sync::atomic::AtomicBool,
        say: &mut dyn FnMut(SlotEvent),
    ) -> Result<SlotLanding, toft_session::error::Error>;
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotLanding {
    /// Everything that was ready was tried.
    Tried,
    /// Another lander is at work.
    Busy,
}

/// An event of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum SlotEvent {
    /// A heartbeat.
    Alive {
        /// When, on this machine's clock, its work is killed if its lease is not renewed.
        until: Option<u64>,
    },
    /// It waits for work.
    Waiting,
    /// It is paused: it claims nothing until it is resumed.
    Paused,
    /// Its agent rests, because the provider refused it.
    Resting {
        agent: String,
        /// When it goes on.
        until: Timestamp,
        text: String,
    },
    /// It claimed a task.
    Claimed {
        task: String,
        issue: Option<String>,
        title: String,
        /// The name of its repository, if the runner works in several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repository: Option<String>,
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// A step before the command starts.
    Step {
        /// A description.
        text: String,
    },
    /// Output of the command.
    Output {
        /// The text, without secrets.
        text: String,
    },
    /// An attempt at a task ended.
    Ended {
        task: String,
        issue: Option<String>,
        /// The outcome: done, failed, released, handed off, waiting.
        how: String,
        message: String,
        /// The task failed for good; a person must decide.
        parked: bool,
        /// How long the command ran.
        ran_ms: u64,
        cost: Option<f64>,
        /// The tokens that it used.
        tokens: Option<u64>,
    },
    /// Finished work is in its target.
    Landed {
        /// Its issue, or itself.
        id: String,
        title: String,
        target: String,
    },
    /// Finished work was pushed to a pull request.
    Proposed {
        /// Its issue, or itself.
        id: String,
        title: String,
        url: String,
    },
    /// Finished work was sent back.
    Bounced {
        /// Its issue, or itself.
        id: String,
        title: String,
        reason: String,
    },
    /// A problem; the slot retries.
    Problem {
        /// A description.
        text: String,
    },
}
