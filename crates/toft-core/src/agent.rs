//! Agents: anything that can hold a lease.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    id::{AgentId, IdGenerator, TaskId, WorkflowId},
    refusal::Refusal,
    schema::JsonSchema,
    time::Timestamp,
};

/// A coding agent, a runner's slot, or a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Stable id.
    pub id: AgentId,
    /// Readable and unique in its space, e.g. `blue-heron`.
    pub name: String,
    /// Its role, which decides what it may do to the work of others.
    pub role: Role,
    /// Capability tags it offers; a task may require some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
    /// What runs it: `claude`, `codex`, a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The machine it was last seen on, as one boot of it.
    pub host: String,
    /// What people call that machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The stored intent. Whether the agent is working is derived from its leases.
    pub state: AgentState,
    /// Why it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// It was paused with every agent of its machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Work was assigned to it at some time, so its claims also read its own lanes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assigned: bool,
    /// Time of its last heartbeat.
    pub seen: Timestamp,
    /// When it was first registered.
    pub created: Timestamp,
}

impl Agent {
    /// How the `runtime` of an agent in a runner's slot begins; the command follows.
    pub const RUNNER: &'static str = "toft run";

    /// Work assigned to an agent is free for others after the agent was silent for this long.
    pub const ASSIGNED_FOR: Duration = Duration::from_secs(24 * 3600);

    /// The machine as people see it.
    #[must_use]
    pub fn machine_name(&self) -> &str {
        if self.machine.is_empty() { &self.host } else { &self.machine }
    }

    /// What it is doing, the one rule: it holds something that stands, or it was told to pause, or it was silent for longer
    /// than a lease lasts without renewal.
    #[must_use]
    pub fn presence(&self, holds: bool, now: Timestamp, ttl: Duration) -> Presence {
        match self.state {
            AgentState::Gone => Presence::Removed,
            _ if holds => Presence::Working,
            _ if now.since(self.seen) > ttl => Presence::Offline,
            AgentState::Draining => Presence::Paused,
            AgentState::Active => Presence::Idle,
        }
    }

    /// Whether work that is assigned to it waits for it. A person's work does, for as long as it takes.
    #[must_use]
    pub fn awaited(&self, now: Timestamp) -> bool {
        let silent = self.role != Role::Human && now.since(self.seen) >= Self::ASSIGNED_FOR;
        self.state != AgentState::Gone && !silent
    }

    /// Whether it is a slot of a runner, which ends its agent when it is told to.
    #[must_use]
    pub fn runs_agents(&self) -> bool {
        self.runtime.as_deref().is_some_and(|runtime| runtime.starts_with(Self::RUNNER))
    }
}

/// The role of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Takes tasks.
    #[default]
    Worker,
    /// Distributes work and supervises other agents.
    Coordinator,
    /// A person.
    Human,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Worker => "worker",
            Self::Coordinator => "coordinator",
            Self::Human => "human",
        })
    }
}

/// What an agent is doing. Derived by [`Agent::presence`], never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Holds a valid lease.
    Working,
    /// Holds no lease.
    Idle,
    /// Was paused: it claims nothing new.
    Paused,
    /// Was silent for longer than the duration of a lease.
    Offline,
    /// Was unregistered.
    Removed,
}

/// The state that was set for an agent; only `active` agents may claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// May claim.
    #[default]
    Active,
    /// Keeps its leases and claims nothing new.
    Draining,
    /// Was unregistered.
    Gone,
}

/// Refuses a name that cannot be typed or shown, or that looks like an id.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let sound = !name.is_empty()
        && name.chars().count() <= 64
        && name.chars().all(plain)
        && name.starts_with(char::is_alphanumeric)
        && !["toft", "human", "all"].contains(&name)
        && ![TaskId::PREFIX, WorkflowId::PREFIX, AgentId::PREFIX].iter().any(|prefix| name.starts_with(prefix));
    if sound {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    let problem = format!("`{shown}` cannot be an agent's name; use one word such as blue-heron");
    Err(Refusal::Invalid { field: "name".into(), problem })
}

/// A readable name such as `blue-heron-x4`.
pub fn readable_name(ids: &mut IdGenerator) -> String {
    const COLOURS: [&str; 16] = [
        "amber", "blue", "coral", "dusky", "fawn", "green", "hazel", "indigo", "jade", "lilac", "mossy", "olive",
        "plum", "red", "sandy", "teal",
    ];
    const ANIMALS: [&str; 16] = [
        "badger", "crane", "dove", "elk", "finch", "fox", "heron", "ibex", "jay", "lynx", "marten", "newt", "otter",
        "pika", "robin", "stoat",
    ];
    let n = ids.number() as usize;
    let word = ids.word();
    format!("{}-{}-{}", COLOURS[n % 16], ANIMALS[(n >> 8) % 16], &word[..3])
}
