//! A slot: a process that works on one task after the other.

mod claim;
mod landing;
mod outcome;

use std::{
    cell::{Cell, RefCell},
    io::BufRead as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use toft_core::{
    agent::{Agent, AgentState},
    flow::Ending,
    keeper::{Duty, Keeper},
    store::StoreError,
    time::Timestamp,
    verbs::{
        agent::{Mine, Register},
        claim::Claimed,
        facts, ready,
    },
    workspace::WorkspaceKind,
};
use toft_plan::Plan;
use toft_session::{
    clones::refresh_clone,
    engine::Home,
    error::Error,
    keep::{KeepView, Keeping, KeptHold},
    mask::Mask,
    processes,
    provider::RestingAgent,
    session::Session,
};
use toft_vcs::{RunError, workspace::WorkspaceError};
use toft_work::{
    Work,
    workspaces::{Given, Wanted, counts_against},
};

use self::claim::{SentClaim, TakenTask};
use super::{
    Rules, SlotEvent, SlotLander,
    attempt::{AttemptEnd, AttemptRun},
    capacity::FreeCapacity,
    files::Files,
    log_sender::LogSender,
    slot_events::{self, SlotEventSender, SlotEventWriter},
    tail::LogTail,
};

/// How long a slot waits for work before it checks for orders.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a slot without work sends a heartbeat to the store.
const SIGN_OF_LIFE: Duration = Duration::from_secs(300);
/// Delay after an error, doubled each time up to the maximum.
const REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// How long to retry reporting an outcome to a store that cannot be reached.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How often a clone that toft made is brought up to date.
const REFRESH: Duration = Duration::from_secs(10);
/// How often a slot sends a heartbeat to its runner.
const SIGN: Duration = Duration::from_secs(1);
/// The order of the runner to end after the current task.
pub(super) const DRAIN: &str = "drain";

/// The result of looking for work.
enum Round {
    Worked,
    Idle,
    Resting,
    Over,
}

/// One slot of a runner.
pub struct Slot {
    repositories: Vec<SlotRepository>,
    /// The repository in which it looks for work, or works.
    at: Cell<usize>,
    rules: Rules,
    name: String,
    mask: Mask,
    events: SlotEventSender,
    writer: RefCell<Option<SlotEventWriter>>,
    /// The lease under which it works.
    kept: Arc<Mutex<Option<KeepView>>>,
    /// What its next or present task may use.
    capacity: RefCell<FreeCapacity>,
    /// Until when its agent rests, as far as it was told.
    resting: RefCell<Option<Timestamp>>,
    /// It said that it is paused.
    told_paused: Cell<bool>,
    /// Lands finished work, if the runner does.
    lander: Option<Box<dyn SlotLander>>,
    drain: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

/// A repository in which a slot looks for work.
struct SlotRepository {
    session: Session,
    /// A claim whose answer was lost: it may have been committed.
    asked: RefCell<Option<SentClaim>>,
    /// What waited to land when that was last tried.
    tried: Cell<u64>,
    /// Another slot lands now.
    landing: Cell<bool>,
}

impl Slot {
    /// A slot with the agent name `name` that works in these repositories, of which there is at least one.
    pub fn new(sessions: Vec<Session>, name: String, rules: Rules) -> Self {
        let servers = sessions.iter().filter_map(|session| match &session.located().store {
            Home::Server(url) => Some(url.as_str()),
            Home::File(_) | Home::Remote(_) => None,
        });
        let mask = Mask::from_environment(servers);
        let repository = |session| SlotRepository {
            session,
            asked: RefCell::default(),
            tried: Cell::new(0),
            landing: Cell::new(false),
        };
        let (events, writer) = slot_events::open();
        Self {
            repositories: sessions.into_iter().map(repository).collect(),
            at: Cell::new(0),
            rules,
            name,
            mask,
            events,
            writer: RefCell::new(Some(writer)),
            kept: Arc::default(),
            capacity: RefCell::default(),
            resting: RefCell::default(),
            told_paused: Cell::default(),
            lander: None,
            drain: Arc::default(),
            stop: Arc::default(),
        }
    }

    fn repository(&self) -> &SlotRepository {
        &self.repositories[self.at.get()]
    }

    fn session(&self) -> &Session {
        &self.repository().session
    }

    fn work(&self) -> Work<'_> {
        Work::of(self.session())
    }

    /// Does something in every repository, one after the other.
    fn everywhere(&self, mut act: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        (0..self.repositories.len()).try_for_each(|at| {
            self.at.set(at);
            act()
        })
    }

    /// Works until there is nothing more to do, the runner says so on standard input, or the runner is gone. Events go
    /// to standard output, one line of JSON each.
    pub fn run(self) -> Result<(), Error> {
        processes::adopt_orphans();
        self.obey();
        self.show_life();
        let worked = self.work_on();
        if let Some(writer) = self.writer.take() {
            writer.close();
        }
        worked
    }

    fn work_on(&self) -> Result<(), Error> {
        let runtime = self.rules.command.first().map(|program| format!("{} {program}", Agent::RUNNER));
        let capabilities = self.rules.can.clone();
        let register = Register { name: Some(self.name.clone()), runtime, capabilities, ..Register::default() };
        let show_up = || {
            // Registering would resume it: an agent that was paused stays paused until a person resumes it.
            let known = self.session().perform_as(&self.name, None, Mine {})?;
            match known.is_some_and(|known| known.agent.state == AgentState::Draining) {
                true => Ok(()),
                false => self.session().perform_as(&self.name, None, register.clone()).map(drop),
            }
        };
        self.everywhere(|| show_up().and_then(|()| self.let_go_of_others()))?;
        let (mut waiting, mut rest, mut seen) = (false, REST, Instant::now());
        while !self.over() {
            match self.round() {
                Ok(Round::Over) => return Ok(()),
                Ok(Round::Worked) if self.rules.once => return self.everywhere(|| self.land_finished()),
                Ok(Round::Worked) => {
                    (waiting, rest) = (false, REST);
                    self.told_paused.set(false);
                }
                Ok(round @ (Round::Idle | Round::Resting)) => {
                    let idle = matches!(round, Round::Idle);
                    if idle && !waiting {
                        self.events.send(SlotEvent::Waiting);
                    }
                    (waiting, rest) = (idle, REST);
                    // An agent that waits for work is not offline.
                    if seen.elapsed() >= SIGN_OF_LIFE {
                        if let Err(error) = self.everywhere(show_up) {
                            self.events.send(SlotEvent::Problem { text: error.to_string() });
                        }
                        seen = Instant::now();
                    }
                }
                Err(error) if passing(&error) => {
                    self.events.send(SlotEvent::Problem { text: error.to_string() });
                    self.sleep(rest);
                    rest = (rest * 2).min(LONGEST_REST);
                    // Whatever it holds and does not work on is for others. What cannot be given back now is the next time.
                    let _ = self.everywhere(|| self.let_go_of_others());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a heartbeat to the runner every second, with the time at which its work is killed without a renewal.
    fn show_life(&self) {
        let (events, kept) = (self.events.clone(), Arc::clone(&self.kept));
        thread::spawn(move || {
            loop {
                let until =
                    kept.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(KeepView::hard_deadline);
                events.send(SlotEvent::Alive { until });
                thread::sleep(SIGN);
            }
        });
    }

    /// Claims one task and works on it, if there is one in any repository.
    fn round(&self) -> Result<Round, Error> {
        let resting = self.resting_agent();
        let paused = self.repositories.len() > 1 && self.paused()?;
        for _ in 0..self.repositories.len() {
            // Each has its turn.
            self.at.set((self.at.get() + 1) % self.repositories.len());
            // A claim whose answer was lost is asked for in any case: it may be held.
            if (resting.is_some() || paused) && self.repository().asked.borrow().is_none() {
                continue;
            }
            match self.look_here()? {
                Round::Idle => {}
                round => return Ok(round),
            }
        }
        if let Some(resting) = resting {
            return self.rest(resting);
        }
        if paused {
            self.say_paused();
            self.sleep(PATIENCE);
        }
        Ok(if self.rules.once || self.rules.until_idle && self.idle()? { Round::Over } else { Round::Idle })
    }

    /// Its agent, if that rests now.
    fn resting_agent(&self) -> Option<RestingAgent> {
        Some(&self.rules.agent).filter(|agent| !agent.is_empty()).and_then(|agent| RestingAgent::of(agent))
    }

    /// Says once why it claims nothing.
    fn say_paused(&self) {
        if !self.told_paused.replace(true) {
            self.events.send(SlotEvent::Paused);
        }
    }

    /// Whether it was paused in any of its repositories.
    fn paused(&self) -> Result<bool, Error> {
        let mut paused = false;
        self.everywhere(|| {
            let known = self.session().perform_as(&self.name, None, Mine {})?;
            paused |= known.is_some_and(|known| known.agent.state == AgentState::Draining);
            Ok(())
        })?;
        Ok(paused)
    }

    /// Claims one task in this repository and works on it, if there is one.
    fn look_here(&self) -> Result<Round, Error> {
        if let Err(error) = refresh_clone(self.session(), REFRESH) {
            self.events.send(SlotEvent::Problem { text: format!("this clone is not up to date: {error}") });
        }
        if self.session().located().sync.auto.is_some()
            && let Some(plan) = Plan::open(self.session())?
        {
            // Issues of other clones; what does not work now does the next time.
            let _ = plan.sync_by_itself();
        }
        self.land_finished()?;
        match self.take()? {
            Some(taken) if self.over() => {
                self.return_unbegun(&taken.claimed)?;
                Ok(Round::Over)
            }
            // It was refused in another slot while this one waited for work.
            Some(taken) if self.resting_agent().is_some() => {
                self.return_unbegun(&taken.claimed)?;
                Ok(Round::Idle)
            }
            Some(taken) => {
                let worked = self.work_on_task(&taken);
                self.capacity.take();
                worked?;
                self.let_go_of_others()?;
                Ok(Round::Worked)
            }
            None => Ok(Round::Idle),
        }
    }

    /// Claims nothing while the agent rests: its provider refuses it. Others go on with the work.
    fn rest(&self, resting: RestingAgent) -> Result<Round, Error> {
        if self.rules.until_idle && self.idle()? {
            return Ok(Round::Over);
        }
        if self.resting.replace(Some(resting.until)) != Some(resting.until) {
            let RestingAgent { agent, until, refusal, .. } = resting;
            self.events.send(SlotEvent::Resting { agent, until, text: refusal.to_string() });
        }
        if self.rules.once {
            return Ok(Round::Over);
        }
        self.sleep(PATIENCE);
        Ok(Round::Resting)
    }

    /// Reads orders of the runner. When the runner is gone, its end of the pipe is closed.
    fn obey(&self) {
        let (drain, stop) = (Arc::clone(&self.drain), Arc::clone(&self.stop));
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                match line {
                    Ok(line) if line == DRAIN => drain.store(true, Ordering::Relaxed),
                    _ => break,
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    fn over(&self) -> bool {
        self.drain.load(Ordering::Relaxed) || self.stop.load(Ordering::Relaxed)
    }

    fn sleep(&self, span: Duration) {
        let step = Duration::from_millis(50);
        let mut left = span;
        while !left.is_zero() && !self.over() {
            thread::sleep(step.min(left));
            left = left.saturating_sub(step);
        }
    }

    /// Whether no task is held, nothing is ready, and nothing becomes ready by itself, in any repository; checked in this
    /// order, so that a task that becomes ready when another ends is seen.
    fn idle(&self) -> Result<bool, Error> {
        let mut idle = true;
        self.everywhere(|| {
            idle = idle && self.idle_here()?;
            Ok(())
        })?;
        Ok(idle)
    }

    fn idle_here(&self) -> Result<bool, Error> {
        let (scope, labels) = (self.session().scope(), self.rules.labels.clone());
        let busy = self.session().perform_as(&self.name, None, ready::Stirring { scope: scope.clone(), labels })?;
        let look = ready::Request {
            scope,
            labels: self.rules.labels.clone(),
            limit: 1,
            mine: true,
            ..ready::Request::default()
        };
        Ok(!busy && !self.repository().landing.get() && self.work().ready_for(&self.name, look)?.ready.is_empty())
    }

    /// Works on a claimed task, and reports the outcome.
    fn work_on_task(&self, taken: &TakenTask) -> Result<(), Error> {
        let TakenTask { claimed, since } = taken;
        let task = &claimed.task;
        let held = KeptHold { actor: self.name.clone(), task: task.id.clone(), fence: claimed.lease.fence() };
        let keeper = Keeper::new(self.rules.ttl, self.rules.grace, *since);
        let keeping = Keeping::start(self.session().located(), held, keeper, |duty| {
            if duty == Duty::Kill {
                processes::kill_left_behind();
            }
        });
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeping.view());
        let checkout = self.session().located().checkout.as_ref();
        self.events.send(SlotEvent::Claimed {
            task: task.id.to_string(),
            issue: claimed.issue.clone(),
            title: task.spec.name.clone(),
            repository: checkout.filter(|_| self.repositories.len() > 1).map(|checkout| checkout.name()),
            attempt: task.state.attempt + 1,
        });
        let log = Files::of(self.session(), &task.id, claimed.lease.fence).map(|files| LogTail::of_file(files.log()));
        let located = self.session().located();
        let sender = log.and_then(|log| LogSender::start(located, task.id.clone(), claimed.lease.fence(), log));
        let came = self.attempt(claimed, &keeping);
        if let Some(sender) = sender {
            sender.finish();
        }
        let came = match came {
            Ok(came) => came,
            Err(_) if keeping.stopped() => {
                let why = keeping.why();
                drop(keeping);
                return self.lost(claimed, &why, 0);
            }
            Err(Error::RunnerStopped) => return self.return_unbegun(claimed),
            Err(error) if counts_against(&claimed.task, &error) => {
                return self.fail(claimed, &format!("no workspace: {error}"));
            }
            Err(error) => {
                // What is no task's fault counts for nothing; the next one may be luckier.
                self.give_back(claimed, &format!("the runner stopped: {error}"))?;
                return Err(error);
            }
        };
        if came.seen.ending == Ending::Lost {
            let (why, ran_ms) = (keeping.why(), came.report.ran_ms);
            drop(keeping);
            return self.lost(claimed, &why, ran_ms);
        }
        self.conclude(claimed, came).or_else(|error| {
            // The command ran, so the attempt counts, whatever could not be told of it.
            self.fail(claimed, &format!("the result could not be recorded: {error}"))
        })
    }

    fn attempt(&self, claimed: &Claimed, keeping: &Keeping) -> Result<AttemptEnd, Error> {
        let (task, taken) = (&claimed.task, SystemTime::now());
        let elsewhere = self.work().in_repository_of_claim(claimed)?;
        let work = elsewhere.as_ref().map_or(self.work(), Work::of);
        if let Some(files) = Files::of(&work, &task.id, claimed.lease.fence) {
            files.begin(&format!("{} took {} \"{}\"", self.name, task.id, task.spec.name), &self.mask)?;
        }
        if task.state.fence > 1 {
            self.end_stragglers(claimed)?;
        }
        let given = self.provide(work, claimed)?;
        if given.existing {
            // Whoever had it before is over, and what they left locked would stop everybody after them.
            for lock in work.workspaces()?.clear_locks(&given.workspace, taken)? {
                let text = format!("removed a lock that a killed git had left: {lock}");
                self.events.send(SlotEvent::Problem { text });
            }
        }
        let attempt = AttemptRun {
            work,
            rules: &self.rules,
            actor: &self.name,
            claimed,
            given: &given,
            mask: &self.mask,
            events: &self.events,
            keeping,
            capacity: &self.capacity.borrow(),
            stop: &self.stop,
        };
        attempt.run()
    }

    /// Provides a workspace; without one there is no attempt.
    fn provide(&self, work: Work<'_>, claimed: &Claimed) -> Result<Given, Error> {
        let (task, fence) = (Some(claimed.task.id.to_string()), Some(claimed.lease.fence()));
        let wanted = Wanted { work: task, fence, base: self.rules.base.clone(), ..Wanted::default() };
        let step = |text: &str| self.events.send(SlotEvent::Step { text: text.to_owned() });
        let given = work.workspaces()?.provide(&self.name, wanted, step)?;
        match given.workspace.kind {
            // Somebody's own checkout is not for agents that nobody watches.
            WorkspaceKind::InPlace => Err(WorkspaceError::PathTaken { path: given.workspace.path.into() }.into()),
            _ => Ok(given),
        }
    }

    /// Ends processes of an earlier attempt at this task.
    fn end_stragglers(&self, claimed: &Claimed) -> Result<(), Error> {
        let attempts = self.session().perform(facts::TaskAttempts { task: claimed.task.id.clone() })?;
        let over: Vec<String> = attempts
            .iter()
            .filter(|attempt| attempt.ended.is_some())
            .map(|attempt| attempt.lease.to_string())
            .collect();
        let count = processes::end_stragglers(&over);
        if count > 0 {
            let text = format!("ended {count} processes that an earlier attempt had left");
            self.events.send(SlotEvent::Problem { text });
        }
        Ok(())
    }
}

/// Whether the error is temporary.
fn passing(error: &Error) -> bool {
    match error {
        Error::Store(error) => !matches!(error, StoreError::Newer { .. } | StoreError::Missing { .. }),
        Error::NoWorkspace { cause } => passing(cause),
        Error::Workspace(error) => {
            use WorkspaceError::{Busy, Io, Run};
            matches!(
                error,
                Busy { .. } | Io { .. } | Run(RunError::Late { .. } | RunError::Failed { .. } | RunError::Io { .. })
            )
        }
        Error::Io { .. } | Error::Refused(_) | Error::Setup { .. } => true,
        Error::Checkout(_)
        | Error::Exchange(_)
        | Error::NoRepository { .. }
        | Error::NotInitialised { .. }
        | Error::UnknownRepository { .. }
        | Error::StoreThere { .. }
        | Error::UnknownStore { .. }
        | Error::NoToken { .. }
        | Error::OnServer { .. }
        | Error::OpenedByServer { .. }
        | Error::Config { .. }
        | Error::PlanFile { .. }
        | Error::Untrusted { .. }
        | Error::NoCloneHere { .. }
        | Error::Start { .. }
        | Error::LeaseLost { .. }
        | Error::RunnerStopped
        | Error::NoSandbox
        | Error::NoLandlock
        | Error::Sandbox { .. } => false,
    }
}
