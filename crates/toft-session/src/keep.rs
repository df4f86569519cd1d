//! Renews a lease in the background and enforces its deadline.
//!
//! One thread renews, over a store connection of its own, and may block in a connect. Another watches the deadline of
//! the [`Keeper`] and calls back when work must stop. Neither waits for the other, or for other work of the process.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use toft_core::{
    flow::{Attempt, AttemptResult, StopOrder},
    id::TaskId,
    keeper::{Duty, Keeper},
    lease::Fence,
    refusal::Refusal,
    verbs::{facts, renew},
};

use crate::{error::Error, locate::Located, session::Session};

/// How often the deadline is checked. A timer cannot be used, because timers stop while a laptop sleeps.
const TICK: Duration = Duration::from_millis(100);
/// How often a store in a file is checked for changes.
const LOOK: Duration = Duration::from_secs(1);
/// How often a server is checked for a stop order.
const LOOK_AT_SERVER: Duration = Duration::from_secs(5);

/// Milliseconds on this machine's clock that also counts during sleep and is never set.
pub fn clock() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let id = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::CLOCK_MONOTONIC;
    let millis = clock_gettime(id).map(|at| at.tv_sec() * 1_000 + at.tv_nsec() / 1_000_000);
    millis.ok().and_then(|millis| u64::try_from(millis).ok()).unwrap_or_default()
}

/// The lease of one agent that is renewed.
#[derive(Clone)]
pub struct KeptHold {
    /// The agent that holds the lease.
    pub actor: String,
    /// The task that is leased.
    pub task: TaskId,
    /// The fence of the lease.
    pub fence: Fence,
}

/// A lease that is renewed until this is dropped.
pub struct Keeping {
    shared: Arc<Shared>,
}

/// A view for other threads.
#[derive(Clone)]
pub struct KeepView {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<KeepState>,
    changed: Condvar,
}

struct KeepState {
    keeper: Keeper,
    /// The lease is no longer needed.
    over: bool,
    /// The holder ended the lease itself.
    ended: bool,
    order: Option<StopOrder>,
    /// The error of the last renewal, until it is reported.
    trouble: Option<String>,
    /// Why work must stop.
    why: Option<String>,
}

impl Keeping {
    /// Starts to renew a lease. `stop` is called repeatedly on a thread of its own for as long as work must stop.
    pub fn start(located: &Located, held: KeptHold, keeper: Keeper, stop: impl FnMut(Duty) + Send + 'static) -> Self {
        let state = KeepState { keeper, over: false, ended: false, order: None, trouble: None, why: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        // Its connection is used again and again.
        let located = Located { brief: false, ..located.clone() };
        let (renewing, watching) = (Arc::clone(&shared), Arc::clone(&shared));
        thread::spawn(move || Renewing { located, held, session: None, change_counter: None }.run(&renewing));
        thread::spawn(move || watch(&watching, stop));
        Self { shared }
    }

    /// The current duty.
    pub fn look(&self) -> Duty {
        self.shared.look()
    }

    /// Whether work was asked to stop because the lease may be lost.
    pub fn stopped(&self) -> bool {
        self.shared.lock().stopped()
    }

    /// Whether the holder ended the lease itself.
    pub fn ended(&self) -> bool {
        self.shared.lock().ended
    }

    /// The stop order, if there is one.
    pub fn order(&self) -> Option<StopOrder> {
        self.shared.lock().order.clone()
    }

    /// The error since the last call.
    pub fn take_trouble(&self) -> Option<String> {
        self.shared.lock().trouble.take()
    }

    /// Why work had to stop.
    pub fn why(&self) -> String {
        let state = self.shared.lock();
        let silent = state.keeper.unrenewed(clock()).as_secs();
        match &state.why {
            Some(why) => why.clone(),
            None => format!("the lease was not renewed for {silent} s"),
        }
    }

    /// A view for another thread.
    pub fn view(&self) -> KeepView {
        KeepView { shared: Arc::clone(&self.shared) }
    }
}

impl KeepView {
    /// When, on [`clock`], all work is killed if the store does not answer; absent if no deadline applies.
    pub fn hard_deadline(&self) -> Option<u64> {
        let state = self.shared.lock();
        (!state.over && !state.ended).then(|| state.keeper.deadline().hard)
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
    }
}

impl KeepState {
    fn stopped(&self) -> bool {
        !self.ended && self.keeper.stopped()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, KeepState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> Duty {
        let (mut state, now) = (self.lock(), clock());
        match state.ended {
            true => Duty::Wait(u64::MAX),
            false => state.keeper.look(now),
        }
    }
}

fn watch(shared: &Shared, mut stop: impl FnMut(Duty)) {
    loop {
        let mut state = shared.lock();
        if state.over || state.ended {
            return;
        }
        let duty = state.keeper.look(clock());
        if matches!(duty, Duty::Wait(_) | Duty::Renew) {
            drop(shared.changed.wait_timeout(state, TICK));
        } else {
            drop(state);
            stop(duty);
            thread::sleep(TICK);
        }
    }
}

struct Renewing {
    located: Located,
    held: KeptHold,
    session: Option<Session>,
    /// The store's change counter at the last check.
    change_counter: Option<u64>,
}

/// The state of a lease in the store.
enum HoldStatus {
    Stands,
    /// Its holder ended it.
    Ended,
    Lost(String),
}

impl Renewing {
    fn run(mut self, shared: &Shared) {
        let look = if self.located.store.file().is_some() { LOOK } else { LOOK_AT_SERVER };
        loop {
            let mut state = shared.lock();
            if state.over || state.ended || state.keeper.stopped() {
                return;
            }
            let now = clock();
            match state.keeper.look(now) {
                Duty::Renew => {
                    let renewal = state.keeper.send(now);
                    drop(state);
                    let answer = self.renew();
                    let mut state = shared.lock();
                    match answer {
                        Ok(HoldStatus::Stands) => {
                            state.keeper.acknowledge(renewal);
                            state.why = None;
                            drop(state);
                            self.look_for_order(shared);
                            continue;
                        }
                        Ok(HoldStatus::Ended) => state.ended = true,
                        Ok(HoldStatus::Lost(why)) => {
                            state.why = Some(why);
                            state.keeper.lose(clock());
                        }
                        Err(error) => {
                            let now = clock();
                            state.keeper.fail(renewal, now);
                            let silent = state.keeper.unrenewed(now).as_secs();
                            state.why = Some(format!("the lease was not renewed for {silent} s: {error}"));
                            state.trouble = Some(format!("could not renew the lease: {error}"));
                        }
                    }
                    shared.changed.notify_all();
                }
                Duty::Wait(until) => {
                    let rest = Duration::from_millis(until.saturating_sub(now)).min(look);
                    let (state, waited) =
                        shared.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner);
                    let due = waited.timed_out() && rest == look && !state.over;
                    drop(state);
                    if due {
                        self.look_for_order(shared);
                    }
                }
                Duty::Terminate(_) | Duty::Kill => return,
            }
        }
    }

    fn session(&mut self) -> Result<&Session, Error> {
        if let Some(session) = self.session.take() {
            return Ok(self.session.insert(session));
        }
        let session = Session::at(self.located.clone())?;
        Ok(self.session.insert(session))
    }

    fn renew(&mut self) -> Result<HoldStatus, Error> {
        let (actor, holds) = (self.held.actor.clone(), vec![(self.held.task.clone(), self.held.fence.clone())]);
        match self.session()?.perform_as(&actor, None, renew::Request { holds, ttl: None }) {
            Ok(_) => return Ok(HoldStatus::Stands),
            Err(Error::Refused(Refusal::FenceStale { holder, .. })) => {
                if let Some(holder) = holder {
                    return Ok(HoldStatus::Lost(format!("the task is {holder}'s now")));
                }
            }
            Err(Error::Refused(Refusal::NotHolder { .. })) => {}
            Err(error) => return Err(error),
        }
        Ok(match self.attempt()?.and_then(|attempt| attempt.result) {
            Some(how) if by_its_holder(how) => HoldStatus::Ended,
            Some(AttemptResult::Revoked) => HoldStatus::Lost("the hold was revoked".into()),
            _ => HoldStatus::Lost("the lease ran out".into()),
        })
    }

    fn attempt(&mut self) -> Result<Option<Attempt>, Error> {
        let KeptHold { task, fence, .. } = self.held.clone();
        let attempts = self.session()?.perform(facts::TaskAttempts { task })?;
        Ok(attempts.into_iter().find(|attempt| attempt.fence() == fence))
    }

    /// Checks for a stop order and whether the holder ended the lease. A failed check is repeated the next time.
    fn look_for_order(&mut self, shared: &Shared) {
        if let Ok(Some(attempt)) = self.attempt_if_changed() {
            let mut state = shared.lock();
            match attempt.result {
                None => state.order = attempt.stop_order(),
                Some(how) if by_its_holder(how) => state.ended = true,
                Some(_) => {
                    state.why = Some("the hold was revoked".into());
                    state.keeper.lose(clock());
                }
            }
            shared.changed.notify_all();
        }
    }

    fn attempt_if_changed(&mut self) -> Result<Option<Attempt>, Error> {
        if self.located.store.file().is_some() {
            let change_counter = self.session()?.engine().change_counter()?;
            if self.change_counter == Some(change_counter) {
                return Ok(None);
            }
            let attempt = self.attempt()?;
            self.change_counter = Some(change_counter);
            return Ok(attempt);
        }
        self.attempt()
    }
}

/// Whether the holder itself ended the lease in this way.
fn by_its_holder(how: AttemptResult) -> bool {
    match how {
        AttemptResult::Done
        | AttemptResult::Failed
        | AttemptResult::Released
        | AttemptResult::Handoff
        | AttemptResult::Waiting => true,
        AttemptResult::Expired | AttemptResult::ProcessGone | AttemptResult::Revoked => false,
    }
}
