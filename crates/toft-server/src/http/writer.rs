//! The writes of a space on PostgreSQL, one after another.
//!
//! A space with many writes is held in memory: those that come together are one group, which is put down in one
//! transaction, and answered after it. Else, and whenever something else writes there, each is run on the store by itself.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use toft_core::{
    refusal::{VerbError, VerbResult},
    store::{GroupEnd, GroupStore, StoreError},
    verbs::Policy,
};
use toft_session::engine::Engine;
use tokio::{sync::oneshot, time::timeout};

use super::{
    metrics::Metrics,
    served_space::{AdmittedCall, run_on},
};

/// The largest group.
const LARGEST: usize = 128;
/// A space with more tasks than that is not held in memory: writes wait while it is loaded, about a second.
const MOST_TASKS: usize = 50_000;
/// A space that is held and not written to is let go.
const IDLE: Duration = Duration::from_secs(60);
/// The connection of a space that is not written to is closed after this long.
const REST: Duration = Duration::from_secs(10);
/// How long a space is not held after something else wrote to it: doubled each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a write may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(25);

/// The thread that writes.
pub(super) struct SpaceWriter {
    writes: Sender<PendingWrite>,
}

/// A write that waits for its turn.
struct PendingWrite {
    call: AdmittedCall,
    answer: oneshot::Sender<VerbResult<Value>>,
}

impl SpaceWriter {
    /// Starts the thread. `hold_from` is the number of writes a second from which the space is held in memory. It ends when this
    /// is dropped.
    pub(super) fn start(engine: Engine, policy: Policy, hold_from: u32, metrics: Arc<Metrics>) -> Self {
        let (writes, taken) = channel();
        thread::spawn(move || WriteLoop::new(&engine, policy, hold_from, metrics).run(&taken));
        Self { writes }
    }

    /// Runs a call in its turn.
    pub(super) async fn run(&self, call: AdmittedCall) -> VerbResult<Value> {
        let (answer, answered) = oneshot::channel();
        let unknown = outcome_unknown(&call);
        let sent = self.writes.send(PendingWrite { call, answer });
        sent.map_err(|_| StoreError::Busy { waited_ms: 0, writer: None })?;
        match timeout(PATIENCE, answered).await {
            Ok(Ok(done)) => done,
            // It may be done yet: who has an operation id asks again with it.
            Ok(Err(_)) | Err(_) => Err(unknown.into()),
        }
    }
}

fn outcome_unknown(call: &AdmittedCall) -> StoreError {
    let op = call.sent.op.as_ref().map_or_else(|| "this operation".to_owned(), |op| op.id.to_string());
    StoreError::OutcomeUnknown { op }
}

struct WriteLoop<'e> {
    engine: &'e Engine,
    policy: Policy,
    hold_from: u32,
    metrics: Arc<Metrics>,
    held: Option<Box<dyn GroupStore + 'e>>,
    /// Since when writes are counted, and how many there were.
    counted: (Instant, u32),
    /// When the space may be held again, and how long the last pause was.
    paused: (Instant, Duration),
}

impl<'e> WriteLoop<'e> {
    fn new(engine: &'e Engine, policy: Policy, hold_from: u32, metrics: Arc<Metrics>) -> Self {
        let now = Instant::now();
        Self { engine, policy, hold_from, metrics, held: None, counted: (now, 0), paused: (now, Duration::ZERO) }
    }

    fn run(mut self, writes: &Receiver<PendingWrite>) {
        loop {
            let first = match writes.recv_timeout(if self.held.is_some() { IDLE } else { REST }) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.held = None;
                    self.engine.rest();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let group: Vec<PendingWrite> = std::iter::once(first).chain(writes.try_iter()).take(LARGEST).collect();
            self.hold_if_busy(group.len());
            // What panics has no answer, and what it left in memory counts no more.
            let run = AssertUnwindSafe(|| match self.held {
                Some(_) => self.run_group(group),
                None => self.run_singly(group),
            });
            if catch_unwind(run).is_err() {
                self.held = None;
            }
        }
    }

    /// Counts writes, and takes the space into memory if there are many.
    fn hold_if_busy(&mut self, new: usize) {
        let (since, count) = &mut self.counted;
        if since.elapsed() > Duration::from_secs(1) {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += new as u32;
        if self.held.is_some() || *count < self.hold_from || Instant::now() < self.paused.0 {
            return;
        }
        match self.engine.hold(MOST_TASKS) {
            Ok(Some(held)) => self.held = Some(held),
            // It is too large, or cannot be read now: without it, everything works as well.
            Ok(None) | Err(_) => self.paused = (Instant::now() + LONGEST_PAUSE, LONGEST_PAUSE),
        }
    }

    /// Lets the space go: something else writes to it.
    fn let_go(&mut self) {
        self.held = None;
        let again_soon = self.paused.0.elapsed() < LONGEST_PAUSE;
        let pause = if again_soon { (self.paused.1 * 2).max(FIRST_PAUSE).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        self.paused = (Instant::now() + pause, pause);
    }

    fn run_singly(&self, writes: Vec<PendingWrite>) {
        for PendingWrite { call, answer } in writes {
            // Who gave up while the store was away asks again.
            if answer.is_closed() {
                continue;
            }
            // Who does not wait any longer asks again with the same operation.
            let store = self.engine.store().map_err(VerbError::from);
            let _ = answer.send(store.and_then(|store| run_on(store, &self.policy, call)));
        }
    }

    fn run_group(&mut self, group: Vec<PendingWrite>) {
        let Some(held) = self.held.as_deref() else { return self.run_singly(group) };
        let ops: Vec<_> = group.iter().filter_map(|write| Some(write.call.sent.op.as_ref()?.id.clone())).collect();
        let (mut answers, mut outside) = (Vec::with_capacity(group.len()), Vec::new());
        let ready = ops.is_empty() || held.expect(&ops).is_ok();
        let mut left = group.into_iter();
        if ready {
            for write in left.by_ref() {
                let done = run_on(held, &self.policy, write.call.clone());
                match held.went_outside() {
                    true => outside.push(write),
                    false => answers.push((write, done)),
                }
            }
        }
        let end = if ready { held.put_down() } else { GroupEnd::Stale };
        self.metrics.group(answers.len(), matches!(end, GroupEnd::Done));
        match end {
            GroupEnd::Done => {
                for (write, done) in answers {
                    let _ = write.answer.send(done);
                }
            }
            GroupEnd::Stale | GroupEnd::Failed(_) => {
                self.let_go();
                self.run_singly(answers.into_iter().map(|(write, _)| write).collect());
            }
            GroupEnd::Unknown => {
                self.let_go();
                for (write, _) in answers {
                    match write.call.sent.op {
                        // If it was done, there is a receipt.
                        Some(_) => self.run_singly(vec![write]),
                        None => {
                            let unknown = outcome_unknown(&write.call);
                            let _ = write.answer.send(Err(unknown.into()));
                        }
                    }
                }
            }
        }
        outside.extend(left);
        if !outside.is_empty() {
            // What they change is not known in memory.
            self.held = None;
            self.run_singly(outside);
        }
    }
}
