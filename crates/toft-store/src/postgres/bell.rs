//! Wakes whoever waits: one listening connection for each process that waits, none for others.
//!
//! A waiter signs in, so that commits tell only while somebody listens. Once told it looks, and signs in again for a
//! moment later: a burst of commits is told once. Behind a pooler, which cannot pass news on, it asks now and then.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    sql,
    url::{Address, digest},
    wire::{BEGIN, Wire, only_number},
};
use crate::value::kept;

/// How long after it was told a waiter is told again.
const REST: Duration = Duration::from_millis(50);
/// How much later it looks by itself, for who began before that and committed after.
const LATE: Duration = Duration::from_millis(10);
/// How long a waiter is signed in; it signs in again before that.
const SIGNED_IN: Duration = Duration::from_secs(30);
/// How often a waiter asks behind a pooler.
const ASK: Duration = Duration::from_millis(200);

pub(super) struct Bell {
    channel: String,
    news: Arc<News>,
    started: OnceLock<()>,
}

#[derive(Default)]
struct News {
    heard: AtomicU64,
    over: AtomicBool,
}

impl Bell {
    pub(super) fn of(address: &Address) -> Self {
        let channel = format!("toft_{}", digest(&format!("{}/{}", address.schema, address.space)));
        Self { channel, news: Arc::default(), started: OnceLock::new() }
    }

    pub(super) fn channel(&self) -> String {
        self.channel.clone()
    }

    /// A number that moves with news; from the first time it is asked, somebody listens.
    pub(super) fn heard(&self, address: &Address) -> u64 {
        self.started.get_or_init(|| {
            let (news, address, channel) = (self.news.clone(), address.clone(), self.channel.clone());
            let (ready, listening) = std::sync::mpsc::channel();
            thread::spawn(move || {
                while !news.over.load(Ordering::SeqCst) {
                    if let Ok(wire) = Wire::connect(&address, true) {
                        listen(wire, &address, &channel, &news, &ready);
                    }
                    // While the connection is lost anything may have happened.
                    news.heard.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(ASK);
                }
            });
            // If nobody listens soon, waiters look by themselves meanwhile.
            let _ = listening.recv_timeout(Duration::from_secs(5));
        });
        self.news.heard.load(Ordering::SeqCst)
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.news.over.store(true, Ordering::SeqCst);
    }
}

/// Listens until the connection is lost or nobody waits any more.
fn listen(mut wire: Wire, address: &Address, channel: &str, news: &News, ready: &std::sync::mpsc::Sender<()>) {
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
                news.heard.fetch_add(1, Ordering::SeqCst);
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
                news.heard.fetch_add(1, Ordering::SeqCst);
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
            news.heard.fetch_add(1, Ordering::SeqCst);
            signed_in = Duration::ZERO;
        } else {
            signed_in = signed_in.saturating_sub(slice);
        }
    }
    let _ = wire.send(&[(sql!("waiter_drop"), &kept![space, me])]);
}
