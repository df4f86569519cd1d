//! A slot: one process that takes one task after the other.

use std::{
    io::{BufRead as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use toft_core::{
    flow::TaskStatus,
    refusal::Refusal,
    store::{self, LeasesOf, StoreError},
    verbs::{
        agent::Register,
        claim::{self, Claimed},
        finish::{self, How},
        ready, report,
    },
    workspace::WorkspaceKind,
};

use toft_vcs::{RunError, workspace::WorkspaceError};

use super::{
    Rules, Told,
    attempt::{Attempt, Came},
    files::Files,
    mask::Mask,
    tree,
};
use crate::{
    engine::Home,
    error::Error,
    session::Toft,
    workspaces::{Given, Wanted},
};

/// How long a slot waits for work before it looks up.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it rests after trouble, doubled each time up to the longest.
const REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// How long a store that cannot be reached is waited for with news of what was done.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// What the runner writes to let a slot end after its task.
pub(super) const DRAIN: &str = "drain";

/// What came of looking for work.
enum Round {
    Worked,
    Idle,
    Over,
}

/// One slot of a runner.
pub struct Slot {
    toft: Toft,
    rules: Rules,
    name: String,
    mask: Mask,
    drain: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Slot {
    /// A slot that works under `name`.
    pub fn new(toft: Toft, name: String, rules: Rules) -> Self {
        let store = match &toft.located().store {
            Home::Server(url) => Some(url.clone()),
            Home::File(_) => None,
        };
        let mask = Mask::from_environment(store);
        Self { toft, rules, name, mask, drain: Arc::default(), stop: Arc::default() }
    }

    /// Works until there is nothing more to do, or the runner says so on standard input, or is gone. News goes to
    /// standard output, a line of JSON each.
    pub fn run(self) -> Result<(), Error> {
        tree::adopt_orphans();
        self.obey();
        let runtime = self.rules.command.first().cloned();
        let capabilities = self.rules.can.clone();
        let register = Register { name: Some(self.name.clone()), runtime, capabilities, ..Register::default() };
        self.toft.perform_as(&self.name, None, register)?;
        self.let_go_of_others()?;
        let (mut waiting, mut rest) = (false, REST);
        while !self.over() {
            match self.round() {
                Ok(Round::Over) => return Ok(()),
                Ok(Round::Worked) if self.rules.once => return Ok(()),
                Ok(Round::Worked) => (waiting, rest) = (false, REST),
                Ok(Round::Idle) => {
                    if !waiting {
                        tell(Told::Waiting);
                    }
                    (waiting, rest) = (true, REST);
                }
                Err(error) if passing(&error) => {
                    tell(Told::Trouble { text: error.to_string() });
                    self.sleep(rest);
                    rest = (rest * 2).min(LONGEST_REST);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes one task and does it, if there is one.
    fn round(&self) -> Result<Round, Error> {
        match self.take()? {
            Some(claimed) if self.over() => {
                self.return_unbegun(&claimed)?;
                Ok(Round::Over)
            }
            Some(claimed) => {
                self.work(&claimed)?;
                self.let_go_of_others()?;
                Ok(Round::Worked)
            }
            None if self.rules.until_idle && self.idle()? => Ok(Round::Over),
            None => Ok(Round::Idle),
        }
    }

    /// Listens to the runner. When it is gone, its end of the pipe is closed.
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

    /// Takes a task, if one is ready soon.
    fn take(&self) -> Result<Option<Claimed>, Error> {
        let request = claim::Request {
            labels: self.rules.labels.clone(),
            scope: self.toft.scope(),
            ttl: Some(self.rules.ttl),
            holder: self.toft.machine().this_process(),
            ..claim::Request::default()
        };
        match self.toft.claim_waiting(&self.name, None, &request, PATIENCE) {
            Ok(outcome) => Ok(outcome.claims.into_iter().next()),
            Err(Error::Refused(Refusal::NothingReady { .. } | Refusal::AgentPaused { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether nobody holds anything, nothing is ready, and nothing becomes ready by itself; in this order, so that what
    /// somebody makes ready by ending is seen.
    fn idle(&self) -> Result<bool, Error> {
        let scope = self.toft.scope();
        let busy = self.toft.perform_as(&self.name, None, ready::Stirring { scope: scope.clone() })?;
        let look = ready::Request {
            scope,
            labels: self.rules.labels.clone(),
            limit: 1,
            mine: true,
            ..ready::Request::default()
        };
        Ok(!busy && self.toft.ready_for(&self.name, look)?.ready.is_empty())
    }

    /// Does what was taken, and says what came of it.
    fn work(&self, claimed: &Claimed) -> Result<(), Error> {
        let (task, taken) = (&claimed.task, SystemTime::now());
        tell(Told::Took {
            task: task.id.to_string(),
            issue: claimed.issue.clone(),
            title: task.name.clone(),
            attempt: task.state.attempt + 1,
        });
        self.attempt(claimed, taken).or_else(|error| match counts(claimed, &error) {
            true => self.fail(claimed, &error),
            false => {
                // What is no task's fault counts for nothing; the next one may be luckier.
                self.give_back(claimed, &error)?;
                Err(error)
            }
        })
    }

    fn attempt(&self, claimed: &Claimed, taken: SystemTime) -> Result<(), Error> {
        let task = &claimed.task;
        if let Some(files) = Files::of(&self.toft, &task.id, claimed.lease.fence) {
            files.begin(&format!("{} took {} \"{}\"", self.name, task.id, task.name), &self.mask)?;
        }
        if task.state.fence > 1 {
            self.end_stragglers(claimed)?;
        }
        let given = self.provide(claimed)?;
        if given.existing {
            // Whoever had it before is over, and what they left locked would stop everybody after them.
            for lock in self.toft.workspaces()?.clear_locks(&given.workspace, taken)? {
                tell(Told::Trouble { text: format!("removed a lock that a killed git had left: {lock}") });
            }
        }
        let attempt = Attempt {
            toft: &self.toft,
            rules: &self.rules,
            actor: &self.name,
            claimed,
            given: &given,
            mask: &self.mask,
            stop: &self.stop,
        };
        self.conclude(claimed, attempt.run(&mut tell)?)
    }

    /// A workspace; without one there is no attempt.
    fn provide(&self, claimed: &Claimed) -> Result<Given, Error> {
        let (work, fence) = (Some(claimed.task.id.to_string()), Some(claimed.lease.fence()));
        let wanted = Wanted { work, fence, base: self.rules.base.clone(), ..Wanted::default() };
        let step = |text: &str| tell(Told::Step { text: text.to_owned() });
        let given = self.toft.workspaces()?.provide(&self.name, wanted, step)?;
        match given.workspace.kind {
            // Somebody's own checkout is not for agents that nobody watches.
            WorkspaceKind::InPlace => Err(WorkspaceError::InTheWay { path: given.workspace.path.into() }.into()),
            _ => Ok(given),
        }
    }

    /// It did not come to an attempt, and that counts.
    fn fail(&self, claimed: &Claimed, error: &Error) -> Result<(), Error> {
        let message = format!("no workspace: {error}");
        let (task, issue) = (claimed.task.id.to_string(), claimed.issue.clone());
        let request = finish::Request {
            id: Some(task.clone()),
            fence: Some(claimed.lease.fence()),
            how: How::Failed,
            message: message.clone(),
            ..finish::Request::default()
        };
        let outcome = self.toft.finish(&self.name, None, request)?;
        let parked = outcome.task.state.status == TaskStatus::Failed;
        tell(Told::Ended { task, issue, how: "failed".into(), message, parked, ran_ms: 0 });
        Ok(())
    }

    /// Ends what an earlier attempt at this task left running.
    fn end_stragglers(&self, claimed: &Claimed) -> Result<(), Error> {
        let attempts = store::ask(self.toft.store(), |tx| tx.attempts(&claimed.task.id))?;
        let over: Vec<String> = attempts
            .iter()
            .filter(|attempt| attempt.ended.is_some())
            .map(|attempt| attempt.lease.to_string())
            .collect();
        let count = tree::end_stragglers(&over);
        if count > 0 {
            tell(Told::Trouble { text: format!("ended {count} processes that an earlier attempt had left") });
        }
        Ok(())
    }

    fn conclude(&self, claimed: &Claimed, came: Came) -> Result<(), Error> {
        let (task, fence) = (&claimed.task, claimed.lease.fence());
        let Came { seen, report, cost } = came;
        let ran_ms = report.ran_ms;
        let ended = |how: &str, message: String, parked: bool| {
            let (task, issue) = (task.id.to_string(), claimed.issue.clone());
            tell(Told::Ended { task, issue, how: how.to_owned(), message, parked, ran_ms });
        };
        let (how, message) = seen.judge();
        let word = word(&how);
        let request = finish::Request {
            id: Some(task.id.to_string()),
            fence: Some(fence.clone()),
            how,
            message: message.clone(),
            cost,
            report: Some(report.clone()),
        };
        match self.patiently(|| self.toft.finish(&self.name, None, request.clone())) {
            Ok(outcome) => {
                ended(word, message, outcome.task.state.status == TaskStatus::Failed);
                return Ok(());
            }
            // The agent ended its hold itself, or somebody else did: what was seen is told all the same.
            Err(Error::Refused(Refusal::FenceStale { .. } | Refusal::NotHolder { .. })) => {}
            Err(error) => return Err(error),
        }
        let request = report::Request { task: task.id.clone(), fence, report, cost };
        let attempt = self.patiently(|| self.toft.perform_as(&self.name, None, request.clone()))?;
        let now = store::ask(self.toft.store(), |tx| tx.task(&task.id))?;
        let parked = now.as_ref().is_some_and(|task| task.state.status == TaskStatus::Failed);
        let how = serde_json::to_value(attempt.result).unwrap_or_default();
        ended(how.as_str().unwrap_or("lost"), attempt.reason.unwrap_or_default(), parked);
        if let Some(now) = now {
            self.toft.tidy_after(&self.name, &now);
        }
        Ok(())
    }

    fn return_unbegun(&self, claimed: &Claimed) -> Result<(), Error> {
        let (id, fence) = (Some(claimed.task.id.to_string()), Some(claimed.lease.fence()));
        let message = "its runner stopped before it began".to_owned();
        self.toft
            .finish(&self.name, None, finish::Request { id, fence, message, ..finish::Request::default() })
            .map(drop)
    }

    /// Gives back what an agent claimed by hand besides its own task, and left: nobody works on it.
    fn let_go_of_others(&self) -> Result<(), Error> {
        let by_hand = store::ask(self.toft.store(), |tx| {
            let Some(me) = tx.agent_named(&self.name)? else { return Ok(Vec::new()) };
            let leases = tx.leases(&LeasesOf::Agent(me.id))?;
            // What follows a process is free when that ends, and counts as lost.
            Ok(leases.into_iter().filter(|lease| lease.holder.is_none()).collect())
        })?;
        for lease in by_hand {
            let message = "its agent ended".to_owned();
            let (id, fence) = (Some(lease.task.to_string()), Some(lease.fence));
            let request = finish::Request { id, fence, message, ..finish::Request::default() };
            match self.toft.finish(&self.name, None, request) {
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the store again for as long as it cannot be reached: what was done should not be done twice.
    fn patiently<T>(&self, mut tell_store: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let (until, mut rest) = (Instant::now() + LONGEST_WAIT, REST);
        loop {
            match tell_store() {
                Err(Error::Store(error)) if Instant::now() < until && !self.stop.load(Ordering::Relaxed) => {
                    tell(Told::Trouble { text: error.to_string() });
                    thread::sleep(rest);
                    rest = (rest * 2).min(LONGEST_REST);
                }
                told => return told,
            }
        }
    }

    fn give_back(&self, claimed: &Claimed, error: &Error) -> Result<(), Error> {
        let (id, fence) = (Some(claimed.task.id.to_string()), Some(claimed.lease.fence()));
        let message = format!("the runner could not go on: {error}");
        let request = finish::Request { id, fence, message, ..finish::Request::default() };
        match self.toft.finish(&self.name, None, request) {
            Ok(_) | Err(Error::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn word(how: &How) -> &'static str {
    match how {
        How::Done(_) => "done",
        How::Failed => "failed",
        How::Release => "released",
        How::Handoff => "handoff",
        How::Waiting(_) => "waiting",
    }
}

/// Whether trouble counts against a task: it is its own, or it has been there before.
fn counts(claimed: &Claimed, error: &Error) -> bool {
    let again = claimed.task.state.fence > 1 && matches!(error, Error::Workspace(_) | Error::Checkout(_));
    of_this_task(error) || again && !full(error)
}

/// Whether a workspace could not be had for a reason that other tasks do not share.
fn of_this_task(error: &Error) -> bool {
    use WorkspaceError::{BadName, BranchTaken, InTheWay, InUse, Stays};
    match error {
        Error::Setup { .. } => true,
        Error::Workspace(error) => {
            matches!(error, BadName { .. } | BranchTaken { .. } | InTheWay { .. } | InUse { .. } | Stays { .. })
        }
        _ => false,
    }
}

/// Whether the disk is full, which is no task's fault.
fn full(error: &Error) -> bool {
    matches!(error, Error::Workspace(WorkspaceError::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::StorageFull)
}

/// Whether it may work the next time.
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
        | Error::Config { .. }
        | Error::PlanFile { .. }
        | Error::Untrusted { .. }
        | Error::Start { .. }
        | Error::NoSandbox
        | Error::Sandbox { .. } => false,
    }
}

/// Passes news on to the runner. If nobody listens, the runner is gone, which its other pipe says too.
#[expect(clippy::needless_pass_by_value, reason = "news is made to be told")]
fn tell(told: Told) {
    let mut out = std::io::stdout().lock();
    if let Ok(line) = serde_json::to_string(&told) {
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
