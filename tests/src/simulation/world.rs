//! What everybody shares: true time, hosts, the network, the store, the ledger.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use toft_core::{
    flow::{PlanTask, Source, TaskStatus, WorkflowPlan, WorkflowStatus},
    id::{IdGenerator, RepositoryId, TaskId},
    lease::{Fence, Holder, Liveness, Processes},
    refusal::{Refusal, VerbError},
    repository::{Place, Repository, Scope, Worktree},
    store::{self, Store, StoreError, TaskQuery},
    testing::{ManualClock, MemoryStore, seeded_ids},
    time::{Now, Tick, Timestamp},
    verbs::{
        self, Caller, Operation, Policy, Verb,
        issue::{Offer, Pending, Told},
    },
};

use super::{Bug, Report};

/// How long a caller waits for an answer.
const PATIENCE: u64 = 2_000;
/// How many things are remembered for a story.
const REMEMBERED: usize = 40;

/// A machine. All of them were made from one image.
pub(crate) struct Host {
    pub(crate) name: String,
    /// This boot.
    pub(crate) boot: String,
    /// What its monotonic clock says beyond true time, and by how much it runs fast, in millionths.
    ahead: u64,
    drift: i64,
    pub(crate) cut_off_until: u64,
    pub(crate) paused_until: u64,
    pub(crate) slow_until: u64,
    pub(crate) alive: BTreeSet<u32>,
}

impl Host {
    /// Its clock that counts sleep too.
    pub(crate) fn clock(&self, time: u64) -> u64 {
        let drifted = i64::try_from(time).unwrap_or(0) * self.drift / 1_000_000;
        (time + self.ahead).saturating_add_signed(drifted)
    }
}

/// What a host can tell of processes.
struct Seen<'a> {
    host: &'a Host,
    bug: Option<Bug>,
    attempts: BTreeSet<String>,
}

impl Processes for Seen<'_> {
    fn host(&self) -> &str {
        &self.host.boot
    }

    fn liveness(&self, holder: &Holder) -> Liveness {
        match holder.host == self.host.boot {
            true if self.host.alive.contains(&holder.pid) => Liveness::Alive,
            true => Liveness::Dead,
            false if self.bug == Some(Bug::ClonedHostJudgedDead) => Liveness::Dead,
            false => Liveness::Unknown,
        }
    }

    fn attempts(&self) -> BTreeSet<String> {
        self.attempts.clone()
    }
}

/// An answer on its way, or a request that nobody will ever answer.
pub(crate) enum Answer<T> {
    /// It came.
    Came(T),
    /// The verb refused.
    Refused(Refusal),
    /// Nobody knows what became of it.
    Unknown,
}

/// A call that was made: when its answer is here, and what it is.
pub(crate) struct Call<T> {
    at: u64,
    answer: Answer<T>,
}

impl<T> Call<T> {
    /// The answer, once it is here.
    pub(crate) fn take(self, time: u64) -> Result<Answer<T>, Self> {
        if time >= self.at { Ok(self.answer) } else { Err(self) }
    }
}

/// An agent whose slot was killed, until the runner ends it.
pub(crate) struct Orphan {
    pub(crate) host: usize,
    pub(crate) task: String,
    pub(crate) lease: String,
    pub(crate) until: u64,
    /// By when its runner ends it in any case, on the host's clock.
    pub(crate) deadline: u64,
    /// Whose agent it was.
    pub(crate) of: String,
}

/// Everything.
pub(crate) struct World {
    pub(crate) orphans: Vec<Orphan>,
    pub(crate) time: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) bug: Option<Bug>,
    pub(crate) broken: Option<String>,
    pub(crate) report: Report,
    /// Acknowledged checkpoints and tasks.
    pub(crate) saved: Vec<(String, String)>,
    pub(crate) done: BTreeSet<String>,
    /// How far the database server's wall clock is off.
    pub(crate) server_off: i64,
    pub(crate) store_full_until: u64,
    pub(crate) ledger_full_until: u64,
    store: Arc<MemoryStore>,
    clock: ManualClock,
    ids: IdGenerator,
    dice: u64,
    next_pid: u32,
    /// Issues as the ledger has them.
    issues: BTreeMap<String, &'static str>,
    happened: VecDeque<String>,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Option<Bug>) -> Self {
        let clock = ManualClock::default();
        let mut world = Self {
            orphans: Vec::new(),
            time: 0,
            hosts: Vec::new(),
            bug,
            broken: None,
            report: Report::default(),
            saved: Vec::new(),
            done: BTreeSet::new(),
            server_off: 0,
            store_full_until: 0,
            ledger_full_until: 0,
            store: Arc::new(MemoryStore::new(clock.clone())),
            clock,
            ids: seeded_ids(seed),
            dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next_pid: 100,
            issues: BTreeMap::new(),
            happened: VecDeque::new(),
        };
        for n in 0..3 {
            let (ahead, drift) = (world.below(1_000_000), world.below(4_000) as i64 - 2_000);
            let (name, boot) = (format!("host-{n}"), format!("boot-{n}-0"));
            let (cut_off_until, paused_until, slow_until) = (0, 0, 0);
            let alive = BTreeSet::new();
            world.hosts.push(Host { name, boot, ahead, drift, cut_off_until, paused_until, slow_until, alive });
        }
        world.issues = (0..3).map(|n| (format!("tf-{n}"), "open")).collect();
        let id = RepositoryId::known("rp_fleet");
        let repository = Repository {
            id: id.clone(),
            name: "fleet".into(),
            vcs: "git".into(),
            common_dir: "/fleet/.git".into(),
            roots: Vec::new(),
            remotes: Vec::new(),
            clone_url: None,
            created: Timestamp(0),
        };
        let worktree = Worktree { repository: id, name: "main".into(), path: "/fleet".into(), seen: Timestamp(0) };
        let seen = world.perform(0, "planner", &[], None, verbs::visit::Request { repository, worktree });
        assert!(seen.is_ok(), "a new store takes its first repository");
        let tasks = ["a", "b", "c"].map(|name| PlanTask { name: name.into(), ..PlanTask::default() });
        let tasks =
            tasks.into_iter().chain([PlanTask { name: "d".into(), needs: vec!["a".into()], ..PlanTask::default() }]);
        let plan = WorkflowPlan { title: "fleet".into(), tasks: tasks.collect(), ..WorkflowPlan::default() };
        let source = Source::Prompt { text: "fleet".into() };
        let made = world.perform(0, "planner", &[], None, verbs::flow::New { plan, source, hold: false });
        assert!(made.is_ok(), "the plan is sound");
        world
    }

    pub(crate) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// A number below `bound`; the same for the same seed.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % bound.max(1)
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn remember(&mut self, what: &str) {
        if self.happened.len() == REMEMBERED {
            self.happened.pop_front();
        }
        self.happened.push_back(format!("{:>7} {what}", self.time));
    }

    pub(crate) fn story(&self, broken: &str) -> String {
        let happened: Vec<&str> = self.happened.iter().map(String::as_str).collect();
        format!("{broken}\n{}", happened.join("\n"))
    }

    /// A new process on a host.
    pub(crate) fn spawn(&mut self, host: usize) -> u32 {
        self.next_pid += 1;
        self.hosts[host].alive.insert(self.next_pid);
        self.next_pid
    }

    pub(crate) fn holder(&self, host: usize, pid: u32) -> Holder {
        let boot = self.hosts[host].boot.clone();
        Holder { host: boot.clone(), boot, pid, started: 1 }
    }

    pub(crate) fn scope() -> Scope {
        Scope { repository: Some(RepositoryId::known("rp_fleet")), worktree: None }
    }

    fn perform<V: Verb>(
        &mut self,
        host: usize,
        actor: &str,
        holds: &[Fence],
        op: Option<Operation>,
        verb: V,
    ) -> Result<V::Outcome, VerbError> {
        let host = &self.hosts[host];
        let tick = Tick { epoch: host.boot.clone(), ms: i64::try_from(host.clock(self.time)).unwrap_or(0) };
        let wall = Timestamp(1_800_000_000_000 + i64::try_from(self.time).unwrap_or(0) + self.server_off);
        self.clock.set(Now { wall, tick });
        let policy = Policy {
            ttl: super::slot::TTL,
            cap: Duration::from_secs(4 * 3_600),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(5),
            max_attempts: 30,
            verify: Vec::new(),
        };
        let here = self.orphans.iter().filter(|orphan| self.hosts[orphan.host].boot == host.boot);
        let attempts = here.map(|orphan| orphan.lease.clone()).collect();
        let seen = Seen { host, bug: self.bug, attempts };
        let place = Place { repository: Self::scope().repository, worktree: Some("main".into()) };
        let mut caller = Caller {
            actor,
            place,
            ids: &mut self.ids,
            processes: &seen,
            policy: &policy,
            holds,
            role: None,
            token: None,
            op,
        };
        self.report.calls += 1;
        verbs::perform(self.store.as_ref(), &mut caller, verb)
    }

    /// Asks the store from a host. What was asked may be lost before or after it was done.
    pub(crate) fn call<V: Verb>(
        &mut self,
        host: usize,
        actor: &str,
        holds: &[Fence],
        op: Option<Operation>,
        verb: V,
    ) -> Call<V::Outcome> {
        let slow = self.hosts[host].slow_until > self.time;
        let journey = 10 + self.below(if slow { 6_000 } else { 150 });
        let cut_off = self.hosts[host].cut_off_until > self.time;
        if cut_off || self.store_full_until > self.time {
            return Call { at: self.time + PATIENCE, answer: Answer::Unknown };
        }
        let lost = self.time < super::STORM && self.chance(30);
        if lost && self.chance(2) {
            return Call { at: self.time + PATIENCE, answer: Answer::Unknown };
        }
        let answer = match self.perform(host, actor, holds, op, verb) {
            Ok(outcome) => Answer::Came(outcome),
            Err(VerbError::Refused(refusal)) => Answer::Refused(refusal),
            Err(VerbError::Failed(StoreError::Conflict)) => Answer::Unknown,
            Err(VerbError::Failed(error)) => panic!("the store failed: {error}"),
        };
        if V::ENDS {
            self.tell_ledger(host);
        }
        match lost {
            true => Call { at: self.time + PATIENCE, answer: Answer::Unknown },
            false => Call { at: self.time + journey, answer },
        }
    }

    /// Whether the ledger can be written.
    pub(crate) fn ledger_writable(&self) -> bool {
        self.ledger_full_until <= self.time
    }

    /// What the ledger has to be told, it is told, as `plan/run.rs` does.
    fn tell_ledger(&mut self, host: usize) {
        if !self.ledger_writable() {
            return;
        }
        let Ok(pending) = self.perform(host, "toft", &[], None, Pending { scope: Self::scope() }) else { return };
        for news in pending {
            let says = match (news.workflow.status, &news.holder) {
                (WorkflowStatus::Completed, _) => "closed",
                (WorkflowStatus::Failed, _) => "parked",
                (_, Some(_)) => "in_progress",
                (_, None) => "open",
            };
            if let Some(issue) = news.workflow.issue() {
                self.issues.insert(issue.to_owned(), says);
            }
            // Whether it was recorded shows in what is pending the next time.
            let _ = self.perform(host, "toft", &[], None, Told { news, noted: None, epics: Vec::new() });
        }
    }

    /// Issues that the ledger offers.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let offer = |id: &String| {
            let issue = serde_json::json!({ "id": id, "title": id, "status": "open", "priority": 2 });
            let issue = serde_json::from_value(issue).expect("an issue");
            // There is one ledger, and it is never behind.
            let said_at = Timestamp(i64::MAX);
            Offer { issue, ledger: "main".into(), rank: format!("12{id}"), said_at, reasons: Vec::new() }
        };
        self.issues.iter().filter(|(_, says)| **says == "open").map(|(id, _)| offer(id)).collect()
    }

    /// The live fence of a task.
    pub(crate) fn live_fence(&self, task: &str) -> Option<Fence> {
        store::ask(self.store(), |tx| tx.lease(&TaskId::known(task))).ok().flatten().map(|lease| lease.fence)
    }

    /// Whether a task is done.
    pub(crate) fn is_done(&self, task: &str) -> bool {
        let found = store::ask(self.store(), |tx| tx.task(&TaskId::known(task))).ok().flatten();
        found.is_some_and(|task| task.state.status == TaskStatus::Done)
    }

    /// After the storm somebody looks now and then, so that what nobody asks about is swept too.
    pub(crate) fn deliver(&mut self) {
        // A runner on a machine that is paused ends nothing.
        let ended = |orphan: &Orphan| {
            let host = &self.hosts[orphan.host];
            let over = orphan.until <= self.time || host.clock(self.time) >= orphan.deadline;
            over && host.paused_until <= self.time
        };
        let kept: Vec<Orphan> = std::mem::take(&mut self.orphans).into_iter().filter(|orphan| !ended(orphan)).collect();
        self.orphans = kept;
        if self.time > super::STORM && self.time.is_multiple_of(2_000) {
            let _ = self.perform(0, "doctor", &[], None, verbs::sweep::Request {});
            self.tell_ledger(0);
        }
    }

    pub(crate) fn all_ended(&mut self) -> bool {
        self.unended().is_empty()
    }

    /// What has not ended, or not in the ledger.
    pub(crate) fn unended(&self) -> String {
        let tasks = store::ask(self.store(), |tx| tx.tasks(&TaskQuery::default())).unwrap_or_default();
        let open = |status: TaskStatus| status.open();
        let tasks = tasks.iter().filter(|task| open(task.state.status));
        let tasks = tasks.map(|task| {
            let lease = store::ask(self.store(), |tx| tx.lease(&task.id));
            format!("{} {} ({:?}, {lease:?})", task.id, task.spec.name, task.state)
        });
        let over = |says: &str| ["closed", "parked"].contains(&says);
        let issues = self.issues.iter().filter(|(_, says)| !over(says)).map(|(id, says)| format!("{id} ({says})"));
        tasks.chain(issues).collect::<Vec<_>>().join(", ")
    }
}
