//! Agents: register, list, pause and wake.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, Work, find};
use crate::{
    agent::{Agent, AgentState, Role, check_name, readable_name},
    change::Write,
    id::TaskId,
    refusal::Verdict,
    store::{Access, LeasesOf},
};

/// Register an agent, or tell more about one that is registered.
#[derive(Clone, Debug, Default)]
pub struct Register {
    /// Its name; a readable one is made up when absent.
    pub name: Option<String>,
    /// What it is for.
    pub role: Option<Role>,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// What runs it.
    pub runtime: Option<String>,
}

impl Verb for Register {
    type Outcome = Agent;
    const NAME: &'static str = "agent.register";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut Work<'_>) -> Verdict<Agent> {
        let name = match self.name {
            Some(name) => name,
            None => readable_name(work.mint),
        };
        check_name(&name)?;
        let known = work.tx.agent_named(&name)?;
        let before = known.clone();
        let mut agent = match known {
            Some(agent) => agent,
            None => work.new_agent(name, Role::Worker),
        };
        agent.role = self.role.unwrap_or(agent.role);
        if !self.capabilities.is_empty() {
            agent.capabilities = self.capabilities;
            agent.capabilities.sort();
            agent.capabilities.dedup();
        }
        agent.runtime = self.runtime.or(agent.runtime);
        agent.state = AgentState::Active;
        agent.host = work.processes.host().to_owned();
        if before.as_ref() != Some(&agent) {
            agent.seen = work.now.wall;
            work.did(
                agent.id.as_str(),
                "agent.registered",
                json!({ "name": agent.name, "role": agent.role, "can": agent.capabilities }),
                vec![Write::Agent(agent.clone())],
            )?;
        }
        Ok(agent)
    }
}

/// Tell an agent to take nothing new, or to go on.
#[derive(Clone, Debug)]
pub struct Tell {
    /// The agent, by name or id; whoever asks when absent.
    pub agent: Option<String>,
    /// What it may do from now on.
    pub state: AgentState,
}

impl Verb for Tell {
    type Outcome = Agent;
    const NAME: &'static str = "agent.tell";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut Work<'_>) -> Verdict<Agent> {
        let mut agent = match &self.agent {
            Some(text) => find::agent(work, text)?,
            None => work.me()?,
        };
        if agent.state != self.state {
            agent.state = self.state;
            work.did(
                agent.id.as_str(),
                "agent.told",
                json!({ "state": agent.state }),
                vec![Write::Agent(agent.clone())],
            )?;
        }
        Ok(agent)
    }
}

/// Whoever asks, with what it holds; nothing if nobody knows it yet.
#[derive(Clone, Copy, Debug)]
pub struct Mine;

impl Verb for Mine {
    type Outcome = Option<Listed>;
    const NAME: &'static str = "agent.mine";
    const ACCESS: Access = Access::Read;

    fn run(self, work: &mut Work<'_>) -> Verdict<Option<Listed>> {
        match work.tx.agent_named(work.actor)? {
            Some(agent) => listed(work, agent).map(Some),
            None => Ok(None),
        }
    }
}

/// Every agent, by name.
#[derive(Clone, Debug, Default)]
pub struct List;

/// An agent with what it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// The agent.
    #[serde(flatten)]
    pub agent: Agent,
    /// What it holds.
    pub holds: Vec<TaskId>,
    /// Seconds since it was last heard of.
    pub silent_s: u64,
}

impl Verb for List {
    type Outcome = Vec<Listed>;
    const NAME: &'static str = "agent.list";
    const ACCESS: Access = Access::Read;

    fn run(self, work: &mut Work<'_>) -> Verdict<Vec<Listed>> {
        let mut listed = Vec::new();
        for agent in work.tx.agents()? {
            listed.push(self::listed(work, agent)?);
        }
        Ok(listed)
    }
}

/// An agent with what it holds.
pub(super) fn listed(work: &mut Work<'_>, agent: Agent) -> Verdict<Listed> {
    let leases = work.tx.leases(&LeasesOf::Agent(agent.id.clone()))?;
    Ok(Listed {
        silent_s: work.now.wall.since(agent.seen).as_secs(),
        holds: leases.into_iter().map(|lease| lease.task).collect(),
        agent,
    })
}
