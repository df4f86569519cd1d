//! Verbs: all requests to a store, one file each.
//!
//! A verb is its request. [`perform`] opens the transaction, runs the verb, and commits. The verb queries the
//! transaction, applies the rules, and writes [`Change`]s. A refusal writes nothing.

pub mod agent;
pub mod answer;
pub mod assign;
pub mod audit;
pub mod calls;
pub mod claim;
mod clock;
pub mod contest;
pub mod context;
pub mod facts;
pub mod find;
pub mod finish;
pub mod flow;
pub mod gc;
pub mod inbox;
pub mod issue;
pub mod land;
pub mod list;
pub mod log;
pub mod op;
mod perform;
pub mod ready;
pub mod renew;
pub mod replan;
pub mod report;
pub mod save;
pub mod send;
pub mod show;
pub mod status;
pub mod stop;
pub mod sweep;
pub mod template;
pub mod token;
pub mod undo;
pub mod visit;
pub mod workspace;

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use perform::{AnyRun, VerbRun, perform, perform_run};

use crate::{
    agent::{Agent, AgentState, Role, check_name},
    change::{Change, Event, Write},
    flow::Workflow,
    id::{AgentId, IdGenerator, OpId, TaskId, WorkflowId},
    lease::{Fence, Lease, LeaseStatus, Processes},
    may::May,
    refusal::{Refusal, VerbError, VerbResult},
    repository::Place,
    schema::{HasSchema, JsonSchema},
    store::{Access, LeasesOf, Prefetch, StoreTx},
    time::Now,
    token::{Token, TokenRole},
};

/// A request that can be run, and run again after a conflict with another writer.
pub trait Verb: Clone + Serialize + DeserializeOwned + HasSchema + 'static {
    /// Its result.
    type Outcome: Serialize + DeserializeOwned + HasSchema + 'static;
    /// Its name in the [registry](calls) and in receipts.
    const NAME: &'static str;
    /// Whether it writes.
    const ACCESS: Access;
    /// The tokens that allow it. A verb without this does not compile.
    const MAY: May<Self>;
    /// Whether it can end a workflow.
    const ENDS: bool = false;
    /// Whether it checks which leases the caller can prove.
    const PROVES: bool = matches!(Self::ACCESS, Access::Write);
    /// Its first queries.
    fn prefetch<'a>(&'a self, _actor: &'a str) -> Prefetch<'a> {
        Prefetch::Unknown
    }
    /// Runs it inside a transaction.
    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Self::Outcome>;
}

/// The caller, its location, and the environment of the rules.
pub struct Caller<'a> {
    /// The agent's name.
    pub actor: &'a str,
    /// The checkout in which it runs.
    pub place: Place,
    /// Generates ids.
    pub ids: &'a mut IdGenerator,
    /// Processes on this machine.
    pub processes: &'a dyn Processes,
    /// The configuration.
    pub policy: &'a Policy,
    /// The fences that this session can prove, for a verb that checks them; any write of the session renews these
    /// leases.
    pub holds: &'a [Fence],
    /// The caller's role, if the surface knows better than the registration: a person at a shell, or an agent that uses
    /// its user's name.
    pub role: Option<Role>,
    /// The token that the caller proved to a server.
    pub token: Option<&'a Token>,
    /// An operation that the caller may repeat; a repeated one returns the same answer and changes nothing.
    pub op: Option<Operation>,
}

/// An operation id and the digest of its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    pub id: OpId,
    /// A digest of the request: a different request with the same id is refused.
    pub request: String,
}

/// Settings that the configuration may change.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Duration of a lease.
    pub ttl: Duration,
    /// How long a live but silent process keeps a lease.
    pub cap: Duration,
    /// Delay before the second attempt at a failed task; doubles after each further failure.
    pub backoff: Duration,
    /// Maximum of that delay.
    pub backoff_max: Duration,
    /// Maximum number of attempts at a task.
    pub max_attempts: u32,
    /// Commands that have to succeed on a commit before it is evidence.
    pub verify: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30 * 60),
            cap: Duration::from_secs(4 * 3600),
            backoff: Duration::from_secs(10),
            backoff_max: Duration::from_secs(600),
            max_attempts: 3,
            verify: Vec::new(),
        }
    }
}

/// The limit of a list if a request names none.
fn usual_limit() -> usize {
    50
}

/// The context of a running verb: the transaction, the clock, and the caller.
pub struct VerbContext<'a> {
    /// The transaction, for queries and changes.
    pub tx: &'a mut dyn StoreTx,
    /// The store's clock when the transaction began.
    pub now: Now,
    pub(crate) actor: &'a str,
    pub(crate) place: Place,
    pub(crate) ids: &'a mut IdGenerator,
    pub(crate) processes: &'a dyn Processes,
    pub(crate) policy: &'a Policy,
    op: Option<OpId>,
    holds: &'a [Fence],
    known_role: Option<Role>,
    token: Option<&'a Token>,
    parts: u32,
    swept: usize,
    me: Option<Agent>,
}

impl VerbContext<'_> {
    /// Whether the caller may speak for an agent of this name. Without a server everybody is one user.
    pub(crate) fn speaks_for(&self, agent: &str) -> bool {
        self.token.is_none_or(|token| token.role == TokenRole::Admin || token.owns(agent))
    }

    /// The same for the agent with this id.
    pub(crate) fn speaks_for_agent(&mut self, id: &AgentId) -> VerbResult<bool> {
        match self.token {
            None => Ok(true),
            Some(_) => {
                let name = self.agent_name(id)?;
                Ok(self.speaks_for(&name))
            }
        }
    }

    /// Refuses a caller whose token has less than this role.
    pub(crate) fn require_token(&self, least: TokenRole, why: &str) -> VerbResult<()> {
        match self.token.filter(|token| token.role < least) {
            Some(token) => {
                Err(Refusal::TokenDenied { name: token.name.clone(), role: token.role, why: why.to_owned() }.into())
            }
            None => Ok(()),
        }
    }

    /// Records a change that the caller made.
    pub(crate) fn record(&mut self, entity: &str, verb: &str, detail: Value, writes: Vec<Write>) -> VerbResult<()> {
        let actor = self.actor.to_owned();
        self.put(actor, entity, verb, detail, writes)
    }

    /// Records a change that a rule made without a request.
    pub(crate) fn record_system(
        &mut self,
        entity: &str,
        verb: &str,
        detail: Value,
        writes: Vec<Write>,
    ) -> VerbResult<()> {
        self.put("toft".to_owned(), entity, verb, detail, writes)
    }

    fn put(&mut self, actor: String, entity: &str, verb: &str, detail: Value, writes: Vec<Write>) -> VerbResult<()> {
        debug_assert!(crate::events::known(verb), "`{verb}` is missing in toft_core::events");
        let op = match &self.op {
            Some(op) => op.clone(),
            None => self.op.insert(op_now(self.ids, &self.now)).clone(),
        };
        let event = Event {
            seq: 0,
            at: self.now.wall,
            actor,
            place: self.place.clone(),
            entity: entity.to_owned(),
            verb: verb.to_owned(),
            detail,
            op,
            part: self.parts,
        };
        self.parts += 1;
        Ok(self.tx.apply(&Change { event, writes })?)
    }

    /// The calling agent. It is registered if it is new, its time of last activity is updated, and the leases of its
    /// session are renewed.
    pub(crate) fn register_caller(&mut self) -> VerbResult<Agent> {
        if let Some(me) = &self.me {
            return Ok(me.clone());
        }
        let me = match self.tx.agent_named(self.actor)? {
            Some(agent) => self.touch_agent(agent)?,
            None => {
                check_name(self.actor)?;
                let agent = self.new_agent(self.actor.to_owned(), self.default_role())?;
                self.record(
                    agent.id.as_str(),
                    "agent.registered",
                    serde_json::json!({ "name": agent.name }),
                    vec![Write::Agent(agent.clone())],
                )?;
                agent
            }
        };
        self.me = Some(me.clone());
        Ok(me)
    }

    /// The caller's role: the one that the surface knows, else the registered one.
    pub(crate) fn role(&mut self) -> VerbResult<Role> {
        if let Some(role) = self.known_role {
            return Ok(role);
        }
        Ok(self.tx.agent_named(self.actor)?.map_or(Role::Worker, |agent| agent.role))
    }

    /// The role of a caller that is registered automatically.
    pub(crate) fn default_role(&self) -> Role {
        self.known_role.unwrap_or_default()
    }

    pub(crate) fn touch_agent(&mut self, mut agent: Agent) -> VerbResult<Agent> {
        const NEWS: Duration = Duration::from_secs(30);
        let stale = self.now.wall.since(agent.seen) >= NEWS || agent.seen > self.now.wall;
        let (host, machine) = (self.processes.host(), self.processes.machine_name());
        if stale || agent.host != host || agent.machine != machine {
            agent.seen = self.now.wall;
            (agent.host, agent.machine) = (host.to_owned(), machine.to_owned());
            self.tx.write_derived(&[Write::Agent(agent.clone())])?;
        }
        for lease in self.tx.leases(&LeasesOf::Agent(agent.id.clone()))? {
            let silent = self.now.since(&lease.renewed_tick, lease.renewed);
            let due = silent >= lease.ttl / 3 || lease.renewed > self.now.wall;
            if due
                && self.holds.contains(&lease.fence)
                && lease.standing(&self.now, self.processes) == LeaseStatus::Live
            {
                let renewed = lease.renew(&self.now, None);
                self.tx.write_derived(&[Write::RenewLease(renewed)])?;
            }
        }
        Ok(agent)
    }

    /// An agent that is seen for the first time. On a machine that is drained, it is paused with the others.
    pub(crate) fn new_agent(&mut self, name: String, role: Role) -> VerbResult<Agent> {
        let (host, machine) = (self.processes.host().to_owned(), self.processes.machine_name().to_owned());
        let name_of_machine = if machine.is_empty() { &host } else { &machine };
        let paused = match role {
            Role::Human => None,
            _ => self.tx.agents()?.into_iter().find(|known| known.drained && known.machine_name() == name_of_machine),
        };
        Ok(Agent {
            id: AgentId::generate(self.ids),
            name,
            role,
            capabilities: Vec::new(),
            runtime: None,
            host,
            machine,
            state: if paused.is_some() { AgentState::Draining } else { AgentState::Active },
            drained: paused.is_some(),
            note: paused.and_then(|known| known.note),
            assigned: false,
            seen: self.now.wall,
            created: self.now.wall,
        })
    }

    /// The name of an agent, or its id if it no longer exists.
    pub(crate) fn agent_name(&mut self, id: &AgentId) -> VerbResult<String> {
        Ok(self.tx.agent(id)?.map_or_else(|| id.to_string(), |agent| agent.name))
    }

    pub(crate) fn require_workflow(&mut self, id: &WorkflowId) -> VerbResult<Workflow> {
        match self.tx.workflow(id)? {
            Some(workflow) => Ok(workflow),
            None => Err(Refusal::NotFound { what: "workflow".into(), text: id.to_string() }.into()),
        }
    }

    /// The caller's live lease on a task: the fence must be current, and the caller must be the agent that holds it.
    pub(crate) fn require_hold(&mut self, task: &TaskId, fence: Option<&Fence>) -> VerbResult<Lease> {
        let lease = self.tx.lease(task)?;
        match (lease, fence) {
            (Some(lease), Some(fence)) if lease.fence == *fence => {
                if self.is_mine(&lease)? {
                    Ok(lease)
                } else {
                    Err(self.held(&lease)?)
                }
            }
            (lease, Some(fence)) => {
                let holder = match lease {
                    Some(lease) => Some(self.agent_name(&lease.agent)?),
                    None => None,
                };
                Err(Refusal::FenceStale { task: task.clone(), yours: fence.clone(), holder }.into())
            }
            (Some(lease), None) => match self.is_mine(&lease)? {
                true => Err(Refusal::OtherSession { task: task.clone(), agent: self.actor.to_owned() }.into()),
                false => Err(self.held(&lease)?),
            },
            (None, None) => {
                let status = self.tx.task(task)?.map_or(crate::flow::TaskStatus::Pending, |task| task.state.status);
                Err(Refusal::NotHolder { task: task.clone(), agent: self.actor.to_owned(), status }.into())
            }
        }
    }

    fn is_mine(&mut self, lease: &Lease) -> VerbResult<bool> {
        Ok(self.tx.agent_named(self.actor)?.is_some_and(|agent| agent.id == lease.agent))
    }

    pub(crate) fn held(&mut self, lease: &Lease) -> VerbResult<VerbError> {
        let agent = self.agent_name(&lease.agent)?;
        Ok(Refusal::LeaseHeld {
            task: lease.task.clone(),
            yours: agent == self.actor,
            agent,
            until: lease.expires(),
            silent_s: self.now.since(&lease.renewed_tick, lease.renewed).as_secs(),
        }
        .into())
    }
}

/// An operation id that sorts by time, so that its index grows at one end.
fn op_now(ids: &mut IdGenerator, now: &Now) -> OpId {
    OpId::known(format!("op_{:09x}{}", now.wall.0.max(0) >> 4, ids.word()))
}
