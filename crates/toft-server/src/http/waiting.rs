//! Claims that found nothing: they wait without a thread, and are tried again when something changed.
//!
//! Claims that ask for the same are one group. After a change one look per group says whether anything is ready; only then
//! claims are tried, the longest waiting first, until one finds nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use toft_core::{refusal::VerbResult, verbs::calls, wire::LedgerEnd};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout, timeout_at},
};

use super::{
    served_space::{AdmittedCall, ServedSpace, may_wait},
    traces,
};

/// Changes of other servers and of direct writers are looked for this often.
const LOOK: Duration = Duration::from_millis(50);
/// Leases and timers end without a change: soon after the last change, and less and less often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_AT_MOST: Duration = Duration::from_secs(4);
/// Connections that no request used for this long are closed.
const REST: Duration = Duration::from_secs(5);
/// Claims of a group that may fail in a row before the rest of the group is not tried.
const IN_VAIN: usize = 8;

#[derive(Default)]
pub(super) struct Waiting {
    /// By what they ask for, and in the order in which they are tried.
    groups: Mutex<HashMap<String, BTreeMap<u64, Waiter>>>,
    turns: AtomicU64,
}

/// How far a clone has read the ledger of its repository.
pub(super) struct ReadLedger {
    repository: String,
    end: LedgerEnd,
}

impl ReadLedger {
    /// As a query says it: `REPOSITORY:END`.
    pub(super) fn of(text: &str) -> Option<Self> {
        let (repository, end) = text.rsplit_once(':')?;
        Some(Self { repository: repository.to_owned(), end: end.parse().ok()? })
    }
}

struct Waiter {
    /// Its place in its group: it moves back when it was tried in vain.
    turn: Arc<AtomicU64>,
    call: AdmittedCall,
    answer: oneshot::Sender<VerbResult<Value>>,
}

impl Waiting {
    /// How many claims wait.
    pub(super) fn count(&self) -> usize {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).values().map(BTreeMap::len).sum()
    }

    fn add(&self, key: &str, call: AdmittedCall) -> (Arc<AtomicU64>, oneshot::Receiver<VerbResult<Value>>) {
        let ((answer, waiter), turn) = (oneshot::channel(), Arc::new(AtomicU64::new(0)));
        self.put_back(key, Waiter { turn: turn.clone(), call, answer });
        (turn, waiter)
    }

    /// Takes a claim back that nobody tries right now; returns whether it was there.
    fn remove(&self, key: &str, turn: &AtomicU64) -> bool {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.get_mut(key).is_some_and(|group| group.remove(&turn.load(Ordering::Relaxed)).is_some())
    }

    fn keys(&self) -> Vec<String> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        for group in groups.values_mut() {
            group.retain(|_, waiter| !waiter.answer.is_closed());
        }
        groups.retain(|_, group| !group.is_empty());
        groups.keys().cloned().collect()
    }

    fn first(&self, key: &str) -> Option<AdmittedCall> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.get(key)?.values().next().map(|waiter| waiter.call.clone())
    }

    fn take(&self, key: &str) -> Option<Waiter> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups.get_mut(key)?;
        while let Some((_, waiter)) = group.pop_first() {
            if !waiter.answer.is_closed() {
                return Some(waiter);
            }
        }
        None
    }

    /// Answers claims of a repository as they were answered first: their callers read its ledger, and ask again.
    pub(super) fn send_back(&self, repository: &str) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, group| {
            let scope =
                group.values().next().and_then(|waiter| waiter.call.sent.request["scope"]["repository"].as_str());
            scope.is_some_and(|scope| scope != repository)
        });
    }

    fn put_back(&self, key: &str, waiter: Waiter) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        waiter.turn.store(turn, Ordering::Relaxed);
        groups.entry(key.to_owned()).or_default().insert(turn, waiter);
    }
}

/// What makes two claims the same, but for who asks.
fn group_of(call: &AdmittedCall) -> String {
    let mut request = call.sent.request.clone();
    if let Some(fields) = request.as_object_mut() {
        fields.remove("holder");
    }
    let place = serde_json::to_string(&call.sent.caller.place).unwrap_or_default();
    blake3::hash(format!("{} {place} {request}", call.call.name).as_bytes()).to_hex().to_string()
}

/// Runs a call, and waits up to `wait` if it finds nothing. Who names a ledger does not wait when that has grown.
pub(super) async fn run(
    state: &ServedSpace,
    call: AdmittedCall,
    wait: Duration,
    ledger: Option<&ReadLedger>,
) -> VerbResult<Value> {
    let (until, changes) = (Instant::now() + wait, state.changes());
    let done = state.run(call.clone()).await;
    if wait.is_zero() || !may_wait(&done) || state.draining() {
        return done;
    }
    let key = group_of(&call);
    let (turn, mut waiter) = state.waiting.add(&key, call);
    if changes.has_changed().unwrap_or(true) {
        // It may have become ready before the claim began to wait.
        state.changed();
    }
    if ledger.is_some_and(|read| state.ledger_has_grown(&read.repository, read.end))
        && state.waiting.remove(&key, &turn)
    {
        return done;
    }
    match traces::part("wait", timeout_at(until, &mut waiter)).await {
        Ok(Ok(answer)) => return answer,
        // The server ends, or there are new issues.
        Ok(Err(_)) => return done,
        Err(_) => {}
    }
    // It may be tried right now: what it gets then is the answer.
    while !state.waiting.remove(&key, &turn) {
        match timeout(LOOK, &mut waiter).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) => return done,
            Err(_) => {}
        }
    }
    done
}

/// Looks for changes, and answers claims that wait, for as long as the space is open.
pub(super) async fn watch(space: Weak<ServedSpace>) {
    let Some(mut changes) = space.upgrade().map(|state| state.changes()) else { return };
    let (mut counted, mut pause) = (None, LOOK_AGAIN);
    let (mut again, mut used) = (Instant::now() + pause, (0, Instant::now()));
    loop {
        let heard = timeout(LOOK, changes.changed()).await;
        let Some(state) = space.upgrade() else { return };
        // Other servers and direct writers change the store, too.
        let changed = match heard {
            Ok(_) => true,
            Err(_) => {
                let now = state.pool.change_counter().await;
                let moved = now.is_some() && now != counted;
                counted = now.or(counted);
                if moved {
                    state.changed();
                    changes.mark_unchanged();
                }
                moved
            }
        };
        if used.0 != state.pool.used() {
            used = (state.pool.used(), Instant::now());
        } else if used.1.elapsed() > REST {
            state.pool.rest().await;
            used.1 = Instant::now();
        }
        if state.draining() {
            for key in state.waiting.keys() {
                // Their callers ask another server.
                while state.waiting.take(&key).is_some() {}
            }
            continue;
        }
        if changed || Instant::now() >= again {
            pause = if changed { LOOK_AGAIN } else { (pause * 2).min(LOOK_AGAIN_AT_MOST) };
            again = Instant::now() + pause;
            for key in state.waiting.keys() {
                serve_group(&state, &key).await;
            }
        }
    }
}

async fn serve_group(state: &Arc<ServedSpace>, key: &str) {
    let Some(first) = state.waiting.first(key) else { return };
    if !is_promising(state, first).await {
        return;
    }
    let mut in_vain = 0;
    while in_vain < IN_VAIN
        && let Some(waiter) = state.waiting.take(key)
    {
        if !state.still_counts(&waiter.call.token).await {
            // Its token was revoked: it gets what it was told first.
            continue;
        }
        let done = state.run(waiter.call.clone()).await;
        match may_wait(&done) {
            true => {
                in_vain += 1;
                state.waiting.put_back(key, waiter);
            }
            // If the caller is gone, it asks again with the same operation and gets this answer.
            false => {
                in_vain = 0;
                let _ = waiter.answer.send(done);
            }
        }
    }
}

/// Whether a claim of this group may find something. A claim of a named task is simply tried.
async fn is_promising(state: &Arc<ServedSpace>, mut call: AdmittedCall) -> bool {
    let request = &call.sent.request;
    if call.call.name != "claim" || !request["id"].is_null() {
        return true;
    }
    let Some(ready) = calls::find("ready") else { return true };
    let (scope, labels, offers) = (&request["scope"], &request["labels"], &request["offers"]);
    let mut look = json!({ "limit": 1 });
    for (name, value) in [("scope", scope), ("labels", labels), ("offers", offers)] {
        if !value.is_null() {
            look[name] = value.clone();
        }
    }
    call.call = ready;
    call.sent.request = look;
    call.sent.op = None;
    // What cannot be told is tried.
    state.run(call).await.map_or(true, |found| found["ready"].as_array().is_none_or(|ready| !ready.is_empty()))
}
