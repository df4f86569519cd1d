//! A stage on which tests perform verbs: any store, a manual clock, and simulated processes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{ManualClock, MemoryStore};
use crate::{
    agent::Role,
    flow::{PlanTask, Source, WorkflowPlan},
    id::{AgentId, IdGenerator, LeaseId, RepositoryId, TaskId, WorkflowId},
    json,
    lease::{Fence, Holder, Lease, Liveness, Processes},
    refusal::{SentError, VerbResult},
    repository::{Place, Repository, Scope, Worktree},
    store::{LeasesOf, Store, ask},
    time::{Now, Tick, Timestamp},
    token::Token,
    verbs::{self, Caller, Operation, Policy, Verb, calls, claim::Claimed, perform},
};

/// Processes of host `here`; a process that is not listed is dead, and one of another host is unknown.
#[derive(Clone, Debug, Default)]
pub struct FixedProcesses {
    alive: Arc<Mutex<BTreeSet<u32>>>,
    attempts: Arc<Mutex<BTreeSet<String>>>,
}

impl FixedProcesses {
    /// Only these processes are running.
    pub fn alive(pids: &[u32]) -> Self {
        Self { alive: Arc::new(Mutex::new(pids.iter().copied().collect())), attempts: Arc::default() }
    }

    /// Processes that were started under a lease keep running.
    pub fn leave_running(&self, lease: &str) {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).insert(lease.to_owned());
    }

    /// Ends a process.
    pub fn kill(&self, pid: u32) {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }
}

impl Processes for FixedProcesses {
    fn host(&self) -> &str {
        "here"
    }

    fn liveness(&self, holder: &Holder) -> Liveness {
        if holder.host != "here" {
            Liveness::Unknown
        } else if self.alive.lock().unwrap_or_else(PoisonError::into_inner).contains(&holder.pid) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }

    fn attempts(&self) -> BTreeSet<String> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A generator that returns the same ids for the same seed.
pub fn seeded_ids(seed: u64) -> IdGenerator {
    let mut state = u128::from(seed) << 64 | 0x9e37_79b9_7f4a_7c15;
    IdGenerator::new(move |bytes| {
        state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(0x5851_f42d_4c95_7f2d);
        let mixed = state ^ (state >> 61);
        *bytes = mixed.rotate_left((state >> 122) as u32).to_le_bytes();
    })
}

/// The time in milliseconds after the start of the stage.
pub fn now_at(ms: i64) -> Now {
    Now { wall: Timestamp(1_800_000_000_000 + ms), tick: Tick { epoch: "boot-1".into(), ms } }
}

/// A lease taken at the start: a ttl of ten seconds, capped at sixty.
pub fn lease(pid: Option<u32>) -> Lease {
    Lease {
        task: TaskId::known("tk_1"),
        workflow: WorkflowId::known("wf_1"),
        repository: None,
        agent: AgentId::known("ag_1"),
        fence: Fence { number: 1, id: LeaseId::known("ls_1") },
        acquired: now_at(0).wall,
        ttl: Duration::from_secs(10),
        cap: Duration::from_secs(60),
        renewed: now_at(0).wall,
        renewed_tick: now_at(0).tick,
        seen: Vec::new(),
        check_at: 0,
        holder: pid.map(|pid| Holder { host: "here".into(), boot: "boot-1".into(), pid, started: 1 }),
    }
}

/// A store with a clock and a seeded id generator, on which verbs are performed.
pub struct Stage {
    pub store: Arc<dyn Store>,
    pub clock: ManualClock,
    /// Processes on this host.
    pub processes: FixedProcesses,
    /// The configuration.
    pub policy: Policy,
    /// Where verbs are performed.
    pub place: Place,
    /// Callers are persons, with every right; otherwise they have the role that they are registered with.
    pub person: bool,
    /// The token that every caller proves to a server.
    pub token: Option<Token>,
    /// Calls are sent as JSON, except in randomized histories, which make millions of calls.
    pub by_wire: bool,
    ids: Mutex<IdGenerator>,
}

impl Stage {
    /// A stage on a new memory store.
    pub fn memory() -> Self {
        let clock = ManualClock::default();
        Self::on(Arc::new(MemoryStore::new(clock.clone())), clock)
    }

    /// A stage on any store that follows `clock`.
    pub fn on(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        let stage = Self {
            store,
            clock,
            processes: FixedProcesses::alive(&[1, 2, 3, 4, 5]),
            policy: Policy { ttl: Duration::from_secs(10), cap: Duration::from_secs(60), ..Policy::default() },
            place: Place { repository: Some(RepositoryId::known("rp_stage")), worktree: Some("main".into()) },
            person: true,
            token: None,
            by_wire: true,
            ids: Mutex::new(seeded_ids(7)),
        };
        let repository = RepositoryId::known("rp_stage");
        let visit = verbs::visit::Request {
            repository: Repository {
                id: repository.clone(),
                name: "stage".into(),
                vcs: "git".into(),
                common_dir: "/stage/.git".into(),
                roots: Vec::new(),
                remotes: Vec::new(),
                clone_url: None,
                created: Timestamp(0),
            },
            worktree: Worktree { repository, name: "main".into(), path: "/stage".into(), seen: Timestamp(0) },
        };
        stage.perform("setup", visit).expect("a new store takes its first repository");
        stage
    }

    /// This repository.
    pub fn scope(&self) -> Scope {
        Scope { repository: self.place.repository.clone(), worktree: None }
    }

    /// Performs a verb as `actor`.
    pub fn perform<V: Verb>(&self, actor: &str, verb: V) -> VerbResult<V::Outcome> {
        self.perform_as_op(actor, verb, None)
    }

    /// Performs a verb as an operation; by default as if it came over a wire, by its name and with everything as JSON.
    pub fn perform_as_op<V: Verb>(&self, actor: &str, verb: V, op: Option<Operation>) -> VerbResult<V::Outcome> {
        let holds: Vec<Fence> = self.holds(actor).into_iter().map(|lease| lease.fence).collect();
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let mut caller = Caller {
            actor,
            place: self.place.clone(),
            ids: &mut ids,
            processes: &self.processes,
            policy: &self.policy,
            holds: &holds,
            role: self.person.then_some(Role::Human),
            token: self.token.as_ref(),
            op,
        };
        if !self.by_wire {
            return perform(self.store.as_ref(), &mut caller, verb);
        }
        let call = calls::find(V::NAME).expect("every verb is in the registry");
        let request = json::to_value(&verb).expect("a request can be sent");
        match call.run(self.store.as_ref(), &mut caller, &request) {
            Ok(outcome) => Ok(json::from_value(&outcome).expect("an outcome can be received")),
            Err(error) => Err(SentError::from(&error).into()),
        }
    }

    /// The leases of an agent: each agent is one session here.
    pub fn holds(&self, actor: &str) -> Vec<Lease> {
        ask(self.store.as_ref(), |tx| match tx.agent_named(actor)? {
            Some(agent) => tx.leases(&LeasesOf::Agent(agent.id)),
            None => Ok(Vec::new()),
        })
        .expect("leases can be read")
    }

    /// The fence of a lease of an agent: on its only task, or on the named one.
    pub fn fence(&self, actor: &str, task: Option<&str>) -> Option<Fence> {
        let named = |lease: &Lease| task.is_none_or(|task| lease.task.as_str() == task);
        self.holds(actor).into_iter().find(named).map(|lease| lease.fence)
    }

    /// Ends a lease of `actor`.
    pub fn finish(&self, actor: &str, request: verbs::finish::Request) -> VerbResult<verbs::finish::Outcome> {
        let fence = self.fence(actor, request.id.as_deref());
        self.perform(actor, verbs::finish::Request { fence, ..request })
    }

    /// A running workflow of tasks, each `name` or `name<-needed,needed`.
    pub fn flow(&self, title: &str, tasks: &[&str]) -> verbs::flow::Outcome {
        self.flow_with(WorkflowPlan { title: title.into(), tasks: plan_tasks(tasks), ..WorkflowPlan::default() })
    }

    /// A running workflow from a plan.
    pub fn flow_with(&self, plan: WorkflowPlan) -> verbs::flow::Outcome {
        let source = Source::Prompt { text: plan.title.clone() };
        self.perform("planner", verbs::flow::New { plan, source, hold: false }).expect("the plan is sound")
    }

    /// Claims the best task as `actor`, without a process.
    pub fn claim(&self, actor: &str) -> VerbResult<Claimed> {
        self.claim_with(actor, verbs::claim::Request { scope: self.scope(), ..Default::default() })
    }

    /// Claims as `actor`.
    pub fn claim_with(&self, actor: &str, request: verbs::claim::Request) -> VerbResult<Claimed> {
        Ok(self.perform(actor, request)?.claims.remove(0))
    }

    /// Claims the best task as `actor`, watched through process `pid`.
    pub fn claim_by_process(&self, actor: &str, pid: u32) -> VerbResult<Claimed> {
        let holder = Some(Holder { host: "here".into(), boot: "boot-1".into(), pid, started: 1 });
        self.claim_with(actor, verbs::claim::Request { scope: self.scope(), holder, ..Default::default() })
    }

    /// The names of ready tasks, in order.
    pub fn ready(&self) -> Vec<String> {
        let request = verbs::ready::Request { scope: self.scope(), limit: 10_000, ..Default::default() };
        let outcome = self.perform("looker", request).expect("looking never fails");
        outcome.ready.iter().map(|item| item.name().to_owned()).collect()
    }
}

/// Tasks written as `name` or `name<-needed,needed`.
pub fn plan_tasks(tasks: &[&str]) -> Vec<PlanTask> {
    tasks
        .iter()
        .map(|text| {
            let (name, needs) = text.split_once("<-").unwrap_or((text, ""));
            PlanTask {
                name: name.into(),
                needs: needs.split(',').filter(|name| !name.is_empty()).map(Into::into).collect(),
                ..PlanTask::default()
            }
        })
        .collect()
}
