//! Agents: register, list, pause, resume and unregister.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, assign, find};
use crate::{
    agent::{Agent, AgentState, Presence, Role, check_name, readable_name},
    change::Write,
    id::TaskId,
    lease::LeaseStatus,
    may::May,
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, LeasesOf},
    token::TokenRole,
};

/// Register an agent, or update a registered one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentRegister")]
#[serde(default)]
pub struct Register {
    /// Its name; generated if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its capability tags.
    pub capabilities: Vec<String>,
    /// The program that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

impl Verb for Register {
    type Outcome = Agent;
    const NAME: &'static str = "agent.register";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Agent> {
        let name = match self.name {
            Some(name) => name,
            None => match work.token {
                Some(token) => format!("{}-{}", token.name, readable_name(work.ids)),
                None => readable_name(work.ids),
            },
        };
        check_name(&name)?;
        if !work.speaks_for(&name) {
            work.require_token(TokenRole::Coordinator, "the agent is another's")?;
        }
        if self.role.is_some_and(|role| role != Role::Worker) {
            work.require_token(TokenRole::Coordinator, "only a coordinator gives agents such a role")?;
        }
        let known = work.tx.agent_named(&name)?;
        let before = known.clone();
        if let (Some(known), Some(role)) = (&known, self.role)
            && known.role != role
            && known.state != AgentState::Gone
        {
            rights::require(work, Action::ChangeRole)?;
        }
        let mut agent = match known {
            Some(known) => Agent { state: AgentState::Active, note: None, drained: false, ..known },
            None => {
                let role = if name == work.actor { work.default_role() } else { Role::Worker };
                work.new_agent(name, role)?
            }
        };
        agent.role = self.role.unwrap_or(agent.role);
        if !self.capabilities.is_empty() {
            agent.capabilities = self.capabilities;
            agent.capabilities.sort();
            agent.capabilities.dedup();
        }
        agent.runtime = self.runtime.or(agent.runtime);
        agent.host = work.processes.host().to_owned();
        agent.machine = work.processes.machine_name().to_owned();
        if before.as_ref() != Some(&agent) {
            agent.seen = work.now.wall;
            work.record(
                agent.id.as_str(),
                "agent.registered",
                json!({ "name": agent.name, "role": agent.role, "can": agent.capabilities }),
                vec![Write::Agent(agent.clone())],
            )?;
        } else {
            // Registering again is a sign of life.
            agent = work.touch_agent(agent)?;
        }
        Ok(agent)
    }
}

/// Pause or resume an agent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentTell")]
pub struct Tell {
    /// The agent, by name or id; the caller if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its new state.
    pub state: AgentState,
    /// Why it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// It is paused with every agent of its machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
}

/// Bytes of a note.
const LONGEST_NOTE: usize = 500;

impl Verb for Tell {
    type Outcome = Agent;
    const NAME: &'static str = "agent.tell";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Agent> {
        let mut agent = match &self.agent {
            Some(text) => find::agent(work, text)?,
            None => work.register_caller()?,
        };
        if agent.name != work.actor {
            rights::require(work, Action::Pause)?;
        }
        if agent.state == AgentState::Gone {
            let wanted = "register it again first (toft agent register)".into();
            return Err(Refusal::WrongState { id: agent.name, state: "removed".into(), wanted }.into());
        }
        if self.state == AgentState::Gone {
            let problem = "an agent is paused or resumed; agent.remove removes it".to_owned();
            return Err(Refusal::Invalid { field: "state".into(), problem }.into());
        }
        let paused = self.state == AgentState::Draining;
        let note = self.note.filter(|note| paused && !note.trim().is_empty());
        if note.as_ref().is_some_and(|note| note.len() > LONGEST_NOTE) {
            let problem = format!("a note has at most {LONGEST_NOTE} bytes");
            return Err(Refusal::Invalid { field: "note".into(), problem }.into());
        }
        let note = note.or_else(|| agent.note.clone().filter(|_| paused));
        let drained = paused && self.drained;
        if (agent.state, &agent.note, agent.drained) != (self.state, &note, drained) {
            (agent.state, agent.note, agent.drained) = (self.state, note, drained);
            let mut detail = json!({ "name": agent.name, "state": agent.state });
            if let Some(note) = &agent.note {
                detail["note"] = note.as_str().into();
            }
            work.record(agent.id.as_str(), "agent.told", detail, vec![Write::Agent(agent.clone())])?;
        }
        Ok(agent)
    }
}

/// Pause or resume the agents of a runner, or of a machine. Paused ones finish what they hold, and claim nothing new. Of a
/// machine, those that were paused before stay as they are, those that come later are paused, too, and those that were paused
/// with it are resumed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentTellRunner")]
pub struct TellRunner {
    /// The name of the runner, whose slots are `NAME-1`, `NAME-2`, …, or of one agent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runner: String,
    /// The machine instead, as it is called where agents are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Their new state.
    pub state: AgentState,
    /// Why they are paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Verb for TellRunner {
    type Outcome = Vec<Agent>;
    const NAME: &'static str = "agent.tell_runner";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Agent>> {
        let agents = work.tx.agents()?.into_iter().filter(|agent| agent.state != AgentState::Gone);
        let found: Vec<Agent> = if let Some(machine) = &self.machine {
            agents.filter(|agent| agent.machine_name() == machine && agent.role != Role::Human).collect()
        } else {
            let slot = |agent: &Agent| agent.runs_agents() && is_slot_of(&agent.name, &self.runner);
            let (slots, others): (Vec<Agent>, Vec<Agent>) = agents.partition(slot);
            // A person has the name of their runner, and is not what is paused.
            match slots.is_empty() {
                true => others.into_iter().filter(|agent| agent.name == self.runner).collect(),
                false => slots,
            }
        };
        if found.is_empty() {
            let (what, text) = match self.machine {
                Some(machine) => ("machine with agents", machine),
                None => ("runner or agent", self.runner),
            };
            return Err(Refusal::NotFound { what: what.into(), text }.into());
        }
        let meant = |agent: &&Agent| {
            self.machine.is_none() || agent.drained || agent.state != self.state && self.state == AgentState::Draining
        };
        let told = |agent: &Agent| Tell {
            agent: Some(agent.id.to_string()),
            state: self.state,
            note: self.note.clone(),
            drained: self.machine.is_some(),
        };
        found.iter().filter(meant).map(|agent| told(agent).run(work)).collect()
    }
}

/// Whether an agent is `RUNNER-1`, `RUNNER-2`, …
fn is_slot_of(agent: &str, runner: &str) -> bool {
    let number = agent.strip_prefix(runner).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Unregister an agent that holds nothing. Work that was assigned to it becomes free; history keeps its name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentRemove")]
pub struct Remove {
    /// The agent, by name or id; the caller if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Verb for Remove {
    type Outcome = Agent;
    const NAME: &'static str = "agent.remove";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Agent> {
        let mut agent = find::agent(work, self.agent.as_deref().unwrap_or(work.actor))?;
        if agent.name != work.actor {
            rights::require(work, Action::Unregister)?;
        }
        let leases = work.tx.leases(&LeasesOf::Agent(agent.id.clone()))?;
        if !leases.is_empty() {
            let held: Vec<_> = leases.iter().map(|lease| lease.task.to_string()).collect();
            let state = format!("holding {}", held.join(", "));
            let wanted = "it finishes that or gives it back first, or you stop it (toft stop)".into();
            return Err(Refusal::WrongState { id: agent.name, state, wanted }.into());
        }
        if agent.state != AgentState::Gone {
            agent.state = AgentState::Gone;
            let detail = json!({ "name": agent.name });
            work.record(agent.id.as_str(), "agent.removed", detail, vec![Write::Agent(agent.clone())])?;
            assign::free_all_of(work, &agent.name)?;
        }
        Ok(agent)
    }
}

/// The calling agent with its leases; nothing if it is not registered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentMine")]
pub struct Mine {}

impl Verb for Mine {
    type Outcome = Option<Listed>;
    const NAME: &'static str = "agent.mine";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Option<Listed>> {
        match work.tx.agent_named(work.actor)? {
            Some(agent) => listed(work, agent).map(Some),
            None => Ok(None),
        }
    }
}

/// Agents, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentList")]
#[serde(default)]
pub struct List {
    /// Include unregistered agents.
    pub all: bool,
}

/// An agent with its leases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListedAgent")]
pub struct Listed {
    #[serde(flatten)]
    pub agent: Agent,
    /// What it is doing.
    pub presence: Presence,
    /// The tasks that it holds.
    pub holds: Vec<TaskId>,
    /// Seconds since its last sign of life.
    pub silent_s: u64,
}

impl Verb for List {
    type Outcome = Vec<Listed>;
    const NAME: &'static str = "agent.list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Listed>> {
        let mut listed = Vec::new();
        for agent in work.tx.agents()?.into_iter().filter(|agent| self.all || agent.state != AgentState::Gone) {
            listed.push(self::listed(work, agent)?);
        }
        Ok(listed)
    }
}

/// An agent with its leases.
pub(super) fn listed(work: &mut VerbContext<'_>, agent: Agent) -> VerbResult<Listed> {
    let leases = work.tx.leases(&LeasesOf::Agent(agent.id.clone()))?;
    let live = leases.iter().any(|lease| lease.standing(&work.now, work.processes) == LeaseStatus::Live);
    Ok(Listed {
        presence: agent.presence(live, work.now.wall, work.policy.ttl),
        silent_s: work.now.wall.since(agent.seen).as_secs(),
        holds: leases.into_iter().map(|lease| lease.task).collect(),
        agent,
    })
}
