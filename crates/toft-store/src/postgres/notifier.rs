//! Wakes waiting processes: one listening connection for all of them on a machine.
//!
//! The first process that waits becomes the listener. It writes a counter into a file for the others, which poll that
//! file and hold no connection. When it ends, its lock on the file is free and another one becomes the listener. A
//! process without a directory for such a file listens for itself.
//!
//! The listener registers itself, so that commits send notifications only while a process listens. After a notification
//! it checks for work, and registers again a moment later, so that a burst of commits sends one notification. Behind a
//! pooler, which cannot pass notifications on, it polls.
//!
//! Many waiting processes must not all connect whenever something changes. A process that checked for work waits ten
//! times as long as that took before it checks again, so together they use a tenth of the server's capacity, and one of
//! them still checks immediately.

use std::{
    fs::File,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    local,
    open::jitter,
    sql,
    url::{StoreAddress, digest},
    wire::{BEGIN, Wire, only_number},
};
use crate::value::kept;

/// Minimum time between two notifications of a waiter.
const REST: Duration = Duration::from_millis(50);
/// How much later it checks without a notification, for transactions that began before that and committed after.
const LATE: Duration = Duration::from_millis(10);
/// How long a registration lasts; it is renewed before that.
const SIGNED_IN: Duration = Duration::from_secs(30);
/// Poll interval behind a pooler, and interval at which a process tries to become the listener.
const ASK: Duration = Duration::from_millis(200);
/// How long a process waits between two checks, as a multiple of the duration of the last one, and the maximum.
const REST_AFTER_LOOK: u32 = 10;
const LONGEST_REST: Duration = Duration::from_secs(10);
/// How long a process waits without a notification before it checks: the listener, and the maximum for others.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);
const LOOK_ANYWAY_AT_MOST: Duration = Duration::from_secs(30);

pub(super) struct Notifier {
    channel: String,
    news: Arc<HeardChange>,
    waiting: Mutex<WaitState>,
}

/// How this process waits.
#[derive(Default)]
struct WaitState {
    /// It is the listener for all processes, or for itself alone.
    listens: bool,
    /// When it tries to become the listener.
    tries_at: Option<Instant>,
    /// The last value of the counter.
    told: u64,
    /// When it started to check.
    looks_since: Option<Instant>,
    /// It does not check before this time.
    rests_until: Option<Instant>,
    /// Number of checks without a notification.
    in_vain: u32,
}

#[derive(Default)]
struct HeardChange {
    heard: AtomicU64,
    over: AtomicBool,
    /// The counter file that all processes of this machine share.
    shared: OnceLock<Option<File>>,
}

impl HeardChange {
    fn ring(&self) {
        let heard = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(Some(file)) = self.shared.get() {
            // If it cannot be written, others look by themselves a little later.
            let _ = std::os::unix::fs::FileExt::write_at(file, &heard.to_le_bytes(), 0);
        }
    }

    fn counter(&self) -> u64 {
        if let Some(Some(file)) = self.shared.get() {
            let mut bytes = [0; 8];
            let read = std::os::unix::fs::FileExt::read_at(file, &mut bytes, 0);
            return if matches!(read, Ok(8)) { u64::from_le_bytes(bytes) & 0xffff_ffff } else { 0 };
        }
        self.heard.load(Ordering::SeqCst)
    }
}

impl Notifier {
    pub(super) fn of(address: &StoreAddress) -> Self {
        let channel = format!("toft_{}", digest(&format!("{}/{}", address.schema, address.space)));
        Self { channel, news: Arc::default(), waiting: Mutex::default() }
    }

    pub(super) fn channel(&self) -> String {
        self.channel.clone()
    }

    /// A number that changes with each notification; the first call starts a listener.
    pub(super) fn heard(&self, address: &StoreAddress) -> u64 {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if !waiting.listens && waiting.tries_at.is_none_or(|at| at <= now) {
            waiting.tries_at = Some(now + jitter(ASK));
            waiting.listens = self.may_listen(address);
            if waiting.listens {
                self.start(address);
            }
        }
        if let Some(since) = waiting.looks_since.take() {
            let rest = (since.elapsed() * REST_AFTER_LOOK).min(LONGEST_REST);
            waiting.rests_until = (!waiting.listens).then(|| now + jitter(rest));
        }
        if waiting.rests_until.is_none_or(|until| until <= now) {
            let counter = self.news.counter();
            waiting.in_vain = if counter == waiting.told { waiting.in_vain } else { 0 };
            waiting.told = counter;
        }
        waiting.told
    }

    /// Records that this process starts to check.
    pub(super) fn looks(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.looks_since.get_or_insert_with(Instant::now);
    }

    /// How long to wait without a notification before checking anyway.
    pub(super) fn look_again_after(&self) -> Duration {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.listens {
            return LOOK_ANYWAY;
        }
        waiting.in_vain = (waiting.in_vain + 1).min(6);
        jitter((LOOK_ANYWAY * 2u32.pow(waiting.in_vain)).min(LOOK_ANYWAY_AT_MOST))
    }

    /// Whether no other process on this machine is the listener.
    fn may_listen(&self, address: &StoreAddress) -> bool {
        let name = || format!("{}/bell/{}", address.shown, self.channel);
        let shared = self.news.shared.get_or_init(|| local::open(&name()).filter(|_| cfg!(unix)));
        shared.as_ref().is_none_or(|file| file.try_lock().is_ok())
    }

    fn start(&self, address: &StoreAddress) {
        self.news.heard.store(self.news.counter(), Ordering::SeqCst);
        let (news, address, channel) = (self.news.clone(), address.clone(), self.channel.clone());
        let (ready, listening) = std::sync::mpsc::channel();
        thread::spawn(move || {
            while !news.over.load(Ordering::SeqCst) {
                if let Ok(wire) = Wire::connect(&address, true) {
                    listen(wire, &address, &channel, &news, &ready);
                }
                // While the connection is lost anything may have happened.
                news.ring();
                thread::sleep(ASK);
            }
        });
        // If nobody listens soon, waiters look by themselves meanwhile.
        let _ = listening.recv_timeout(Duration::from_secs(5));
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.news.over.store(true, Ordering::SeqCst);
    }
}

/// Listens until the connection is lost or no process waits any more.
fn listen(
    mut wire: Wire,
    address: &StoreAddress,
    channel: &str,
    news: &HeardChange,
    ready: &std::sync::mpsc::Sender<()>,
) {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |at| at.as_nanos());
    let me = format!("{}-{now}", std::process::id());
    let space = address.space.as_str();
    let pooled = wire.pooled();
    if !pooled && wire.batch(&format!("LISTEN \"{channel}\"; SET synchronous_commit = off")).is_err() {
        return;
    }
    let settings = wire.local_settings.clone().unwrap_or_else(|| "SELECT 1".into());
    let mut newest = None;
    let (mut told, mut signed_in) = (false, Duration::ZERO);
    while !news.over.load(Ordering::SeqCst) {
        if pooled {
            let answers = wire.send(&[(BEGIN, &[]), (&settings, &[]), (sql!("newest"), &[]), ("COMMIT", &[])]);
            let Ok(rows) = answers else { return };
            let Ok(found) = only_number(&rows[2]) else { return };
            if newest.replace(found) != Some(found) {
                news.ring();
            }
            let _ = ready.send(());
            thread::sleep(ASK);
            continue;
        }
        if signed_in.is_zero() {
            let rest = if told { REST } else { Duration::ZERO };
            let values = kept![space, me, rest.as_millis() as u64, SIGNED_IN.as_millis() as u64];
            if wire.send(&[(sql!("waiter_put"), &values)]).is_err() {
                return;
            }
            if told {
                // Nobody tells before then, nor who began before then: that is looked for once, a little later.
                thread::sleep(REST + LATE);
                news.ring();
            }
            signed_in = SIGNED_IN / 2;
            let _ = ready.send(());
        }
        let slice = Duration::from_secs(1).min(signed_in);
        told = wire.listen(slice);
        if !wire.is_open() {
            return;
        }
        if told {
            news.ring();
            signed_in = Duration::ZERO;
        } else {
            signed_in = signed_in.saturating_sub(slice);
        }
    }
    let _ = wire.send(&[(sql!("waiter_drop"), &kept![space, me])]);
}
