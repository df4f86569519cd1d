//! A runner's slot: claims, keeps the hold, lets an agent work, and says what came of it.

use std::time::Duration;

use toft_core::{
    flow::Evidence,
    id::OpId,
    keeper::{Duty, Keeper, Renewal},
    lease::Fence,
    refusal::Refusal,
    store::{self, LeasesOf},
    verbs::{
        Operation,
        claim::{self, Claimed},
        finish::{self, How},
        renew, save,
    },
};

use super::{
    Bug, STEP,
    world::{Answer, Call, Orphan, World},
};

/// How long a lease lasts, and how long an agent that is told to end may take.
pub(crate) const TTL: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_millis(1_500);
/// A runner that sees no sign of life of a slot for so long kills it with its agent.
const SILENT: u64 = 3_400;
/// A runner ends what a killed slot left within this time.
const ORPHANED: u64 = 300;
/// A slot that was killed is started again after this time.
const AGAIN: u64 = 1_000;

enum State {
    Idle {
        until: u64,
    },
    Claiming {
        op: Operation,
        request: claim::Request,
        sent: u64,
        again: bool,
        call: Call<claim::Outcome>,
    },
    /// A claim whose answer came late: does the hold still stand?
    Proving {
        claimed: Box<Claimed>,
        sent: u64,
        call: Call<renew::Outcome>,
    },
    /// Its agent was stopped before the lease could be given away.
    GivingBack {
        task: String,
        fence: Fence,
        call: Call<finish::Outcome>,
    },
    Working(Box<Work>),
    Finishing {
        task: String,
        fence: Fence,
        op: Operation,
        how: bool,
        call: Call<finish::Outcome>,
    },
    Dead {
        until: u64,
    },
}

struct Work {
    task: String,
    fence: Fence,
    keeper: Keeper,
    /// The agent runs; told to end, it does so at this time.
    agent: bool,
    ends_at: Option<u64>,
    left: u64,
    renewal: Option<(Renewal, Call<renew::Outcome>)>,
    saving: Option<(String, Call<save::Outcome>)>,
}

pub(crate) struct Slot {
    pub(crate) host: usize,
    name: String,
    pid: u32,
    /// How often it was started: operation ids begin anew with each start.
    start: u64,
    ops: u64,
    state: State,
    pub(crate) stopped_since: Option<u64>,
    pub(crate) stopped_until: u64,
}

impl Slot {
    pub(crate) fn new((host, n): (usize, usize)) -> Self {
        Self {
            host,
            name: format!("host-{host}-slot-{n}"),
            pid: 0,
            start: 0,
            ops: 0,
            state: State::Dead { until: 0 },
            stopped_since: None,
            stopped_until: 0,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The task its agent is at work on now.
    pub(crate) fn at_work(&self, world: &World) -> Option<&str> {
        if world.hosts[self.host].paused_until > world.time {
            return None;
        }
        match &self.state {
            State::Working(work) if work.agent => Some(&work.task),
            _ => None,
        }
    }

    /// It is killed; its agent is an orphan until the runner sees to it.
    pub(crate) fn kill(&mut self, world: &mut World) {
        world.hosts[self.host].alive.remove(&self.pid);
        if let State::Working(work) = &mut self.state
            && work.agent
        {
            let (host, task, until) = (self.host, work.task.clone(), world.time + ORPHANED);
            let (lease, deadline) = (work.fence.id.to_string(), work.keeper.deadline().hard);
            world.orphans.push(Orphan { host, task, lease, until, deadline, of: self.name.clone() });
        }
        self.state = State::Dead { until: world.time + AGAIN };
        (self.stopped_since, self.stopped_until) = (None, 0);
    }

    /// Its machine lost power: nothing is left.
    pub(crate) fn power_cut(&mut self, world: &mut World) {
        self.kill(world);
        world.orphans.retain(|orphan| orphan.host != self.host);
        self.state = State::Dead { until: world.time + 5_000 };
    }

    pub(crate) fn step(&mut self, world: &mut World) {
        if world.hosts[self.host].paused_until > world.time {
            return;
        }
        if self.watched_by_runner(world) {
            return;
        }
        self.state = match std::mem::replace(&mut self.state, State::Idle { until: 0 }) {
            State::Dead { until } if until <= world.time => {
                self.pid = world.spawn(self.host);
                (self.start, self.ops) = (self.start + 1, 0);
                State::Idle { until: world.time }
            }
            State::Idle { until } if until <= world.time => self.claim(world),
            State::Claiming { op, request, sent, again, call } => match call.take(world.time) {
                Err(call) => State::Claiming { op, request, sent, again, call },
                // Sent again under the same id: it may have been done.
                Ok(Answer::Unknown) => self.ask_to_claim(world, op, request, true),
                Ok(Answer::Refused(_)) => self.told_no(world),
                Ok(Answer::Came(outcome)) => self.claimed(world, outcome, sent, again),
            },
            State::Proving { claimed, sent, call } => match call.take(world.time) {
                Err(call) => State::Proving { claimed, sent, call },
                Ok(Answer::Unknown) => self.prove(world, claimed),
                Ok(Answer::Refused(_)) => State::Idle { until: world.time + 500 },
                Ok(Answer::Came(_)) => self.begin(world, claimed, sent),
            },
            State::GivingBack { task, fence, call } => match call.take(world.time) {
                Err(call) => State::GivingBack { task, fence, call },
                Ok(Answer::Unknown) => self.give_back(world, task, fence),
                Ok(_) => State::Idle { until: world.time + 500 },
            },
            State::Working(work) => self.work(world, work),
            State::Finishing { task, fence, op, how, call } => self.finished(world, task, fence, op, how, call),
            other => other,
        };
    }

    /// A slot that is stopped shows no life: its runner kills it and its agent before the lease can be given away.
    fn watched_by_runner(&mut self, world: &mut World) -> bool {
        let Some(since) = self.stopped_since else { return false };
        if world.time >= self.stopped_until {
            self.stopped_since = None;
            return false;
        }
        let clock = world.hosts[self.host].clock(world.time);
        let too_late = match &mut self.state {
            State::Working(work) => clock >= work.keeper.deadline().hard,
            _ => false,
        };
        let fences = world.bug != Some(Bug::NoSelfFencing);
        if fences && (world.time >= since + SILENT || too_late) {
            world.remember(&format!("{} was stopped, and its runner killed it", self.name));
            self.kill(world);
            world.orphans.retain(|orphan| orphan.of != self.name);
        }
        true
    }

    fn op(&mut self, request: &str, world: &World) -> Operation {
        self.ops += 1;
        let id = OpId::known(format!("{}-{}", self.name, self.ops));
        let request = match world.bug {
            Some(Bug::OpIdWithoutHash) => String::new(),
            _ => format!("{} {request}", self.start),
        };
        Operation { id, request }
    }

    fn claim(&mut self, world: &mut World) -> State {
        let holder = Some(world.holder(self.host, self.pid));
        let request = claim::Request { scope: World::scope(), ttl: Some(TTL), holder, ..Default::default() };
        let op = self.op("claim", world);
        self.ask_to_claim(world, op, request, false)
    }

    fn ask_to_claim(&self, world: &mut World, op: Operation, request: claim::Request, again: bool) -> State {
        // Only issues whose ledger can be written are offered, unless nobody looks.
        let looks = world.bug != Some(Bug::ErrorAfterCommit);
        let offers = if looks && !world.ledger_writable() { Vec::new() } else { world.offers() };
        let sent = world.hosts[self.host].clock(world.time);
        let asked = claim::Request { offers, ..request.clone() };
        let call = world.call(self.host, &self.name, &[], Some(op.clone()), asked);
        State::Claiming { op, request, sent, again, call }
    }

    fn claimed(&mut self, world: &mut World, outcome: claim::Outcome, sent: u64, again: bool) -> State {
        let Some(claimed) = outcome.claims.into_iter().next() else { return State::Idle { until: world.time + 1_000 } };
        if world.bug == Some(Bug::ErrorAfterCommit) && claimed.issue.is_some() && !world.ledger_writable() {
            world.remember(&format!("{} takes its claim of {} for an error", self.name, claimed.task.id));
            return self.told_no(world);
        }
        let claimed = Box::new(claimed);
        let late = world.hosts[self.host].clock(world.time) - sent > TTL.as_millis() as u64 / 4;
        let believes = world.bug == Some(Bug::OpIdWithoutHash);
        if (again || late) && !believes { self.prove(world, claimed) } else { self.begin(world, claimed, sent) }
    }

    /// A claim that says no has taken nothing.
    fn told_no(&self, world: &mut World) -> State {
        let me = world.holder(self.host, self.pid);
        let leases = store::ask(world.store(), |tx| tx.leases(&LeasesOf::Repository(None))).unwrap_or_default();
        if let Some(lease) = leases.iter().find(|lease| lease.holder.as_ref() == Some(&me)) {
            world.broken = Some(format!("{} was told that it got nothing, and holds {}", self.name, lease.task));
        }
        State::Idle { until: world.time + 1_000 }
    }

    fn prove(&self, world: &mut World, claimed: Box<Claimed>) -> State {
        let holds = vec![(claimed.task.id.clone(), claimed.lease.fence())];
        let sent = world.hosts[self.host].clock(world.time);
        let call = world.call(self.host, &self.name, &[], None, renew::Request { holds, ttl: None });
        State::Proving { claimed, sent, call }
    }

    fn give_back(&self, world: &mut World, task: String, fence: Fence) -> State {
        let (id, held) = (Some(task.clone()), Some(fence.clone()));
        let request = finish::Request { id, fence: held, message: "stopped".into(), ..finish::Request::default() };
        let call = world.call(self.host, &self.name, &[], None, request);
        State::GivingBack { task, fence, call }
    }

    /// The agent starts, unless the hold may be over already.
    fn begin(&mut self, world: &mut World, claimed: Box<Claimed>, sent: u64) -> State {
        let clock = world.hosts[self.host].clock(world.time);
        let mut keeper = Keeper::new(TTL, GRACE, sent);
        if !matches!(keeper.look(clock), Duty::Wait(_) | Duty::Renew) && world.bug != Some(Bug::NoSelfFencing) {
            return self.prove(world, claimed);
        }
        let task = claimed.task.id.to_string();
        // What an earlier attempt at it left on this machine is ended before the next begins.
        world.orphans.retain(|orphan| !(orphan.host == self.host && orphan.task == task));
        world.remember(&format!("{} works on {task} under {}", self.name, claimed.lease.fence));
        let left = 2_000 + world.below(16_000);
        let (fence, ends_at, renewal, saving) = (claimed.lease.fence(), None, None, None);
        State::Working(Box::new(Work { task, fence, keeper, agent: true, ends_at, left, renewal, saving }))
    }

    fn work(&mut self, world: &mut World, mut work: Box<Work>) -> State {
        let clock = world.hosts[self.host].clock(world.time);
        if let Some((renewal, call)) = work.renewal.take() {
            match call.take(world.time) {
                Err(call) => work.renewal = Some((renewal, call)),
                Ok(Answer::Came(_)) => work.keeper.acknowledge(renewal),
                Ok(Answer::Refused(_)) => work.keeper.lose(clock),
                Ok(Answer::Unknown) => work.keeper.fail(renewal, clock),
            }
        }
        if let Some((note, call)) = work.saving.take() {
            match call.take(world.time) {
                Err(call) => work.saving = Some((note, call)),
                Ok(Answer::Came(_)) => {
                    world.report.acknowledged += 1;
                    world.saved.push((work.task.clone(), note));
                }
                Ok(_) => {}
            }
        }
        match work.keeper.look(clock) {
            Duty::Wait(_) => {}
            Duty::Renew => {
                let renewal = work.keeper.send(clock);
                let holds = vec![(toft_core::id::TaskId::known(work.task.as_str()), work.fence.clone())];
                let call = world.call(self.host, &self.name, &[], None, renew::Request { holds, ttl: None });
                work.renewal = Some((renewal, call));
            }
            Duty::Terminate(_) | Duty::Kill if world.bug == Some(Bug::NoSelfFencing) => {}
            Duty::Terminate(_) => {
                let takes = world.below(2_000);
                work.ends_at.get_or_insert(world.time + takes);
            }
            Duty::Kill => {
                world.remember(&format!("{} stops its agent on {}", self.name, work.task));
                return self.give_back(world, work.task, work.fence);
            }
        }
        if work.ends_at.is_some_and(|at| at <= world.time) {
            return self.give_back(world, work.task, work.fence);
        }
        work.left = work.left.saturating_sub(STEP);
        if work.left > 0 {
            if work.saving.is_none() && world.chance(40) {
                let note = format!("{}/{}/{}", self.name, self.start, world.time);
                let request = save::Request {
                    id: Some(work.task.clone()),
                    fence: Some(work.fence.clone()),
                    message: Some(note.clone()),
                    ..save::Request::default()
                };
                work.saving = Some((note, world.call(self.host, &self.name, &[], None, request)));
            }
            return State::Working(work);
        }
        let op = self.op("finish", world);
        let how = !world.chance(6);
        self.finish(world, work.task, work.fence, op, how)
    }

    fn finish(&self, world: &mut World, task: String, fence: Fence, op: Operation, how: bool) -> State {
        let request = finish::Request {
            id: Some(task.clone()),
            fence: Some(fence.clone()),
            how: if how { How::Done(Evidence::Commit("c".into())) } else { How::Failed },
            message: "m".into(),
            ..finish::Request::default()
        };
        let call = world.call(self.host, &self.name, &[], Some(op.clone()), request);
        State::Finishing { task, fence, op, how, call }
    }

    fn finished(
        &mut self,
        world: &mut World,
        task: String,
        fence: Fence,
        op: Operation,
        how: bool,
        call: Call<finish::Outcome>,
    ) -> State {
        match call.take(world.time) {
            Err(call) => State::Finishing { task, fence, op, how, call },
            Ok(Answer::Unknown) => self.finish(world, task, fence, op, how),
            Ok(Answer::Came(outcome)) => {
                world.report.acknowledged += 1;
                if how {
                    world.done.insert(task.clone());
                }
                world.remember(&format!("{} ended {task}: {}", self.name, outcome.task.state.status.as_str()));
                State::Idle { until: world.time + 200 }
            }
            Ok(Answer::Refused(Refusal::OpReused { .. })) => {
                let op = self.op("finish", world);
                self.finish(world, task, fence, op, how)
            }
            Ok(Answer::Refused(_)) => State::Idle { until: world.time + 500 },
        }
    }
}
