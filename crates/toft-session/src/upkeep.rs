//! Upkeep: deletes rows that have been kept long enough, and frees their space.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use toft_core::{
    retention::{Retention, RetentionKind},
    store::Store as _,
    time::Timestamp,
    verbs::{facts, gc},
};
use toft_store::private;

use crate::{
    blobs,
    engine::Engine,
    error::{Error, io},
    session::Session,
};

/// A store without writes for this long is skipped.
const IDLE: Duration = Duration::from_secs(3 * 86_400);
/// Number of rows that one transaction deletes, on request and automatically.
const BATCH: usize = 5_000;
const SMALL_BATCH: usize = 200;
/// How long a long-running command may spend on automatic upkeep, once a day.
const UNASKED: Duration = Duration::from_millis(20);
const DAILY: Duration = Duration::from_secs(24 * 3600);

impl Session {
    /// Deletes rows that have been kept long enough, in batches so that other writers do not wait long, and records it
    /// in the log. After each batch `progress` gets the numbers of deleted rows so far.
    pub fn forget_old(
        &self,
        retention: &Retention,
        progress: impl FnMut(RetentionKind, u64),
    ) -> Result<gc::Outcome, Error> {
        if let Engine::Remote(_) = self.engine() {
            self.note(format!("{} forgets old history itself", self.located().store));
            return Ok(gc::Outcome { gone: Vec::new() });
        }
        self.forget_until(retention, BATCH, None, progress)
    }

    /// Returns free space to the file system; returns the number of bytes. A server does that itself.
    pub fn reclaim(&self) -> Result<u64, Error> {
        self.engine().reclaim(Instant::now() + DAILY)
    }

    /// Does a little of both if it was not done for a day. It is automatic, so its failures are not errors.
    pub fn forget_daily(&self) -> Result<(), Error> {
        let Some(checkout) = &self.located().checkout else { return Ok(()) };
        let stamp = checkout.state_dir().join("last-gc");
        let last = fs::metadata(&stamp).and_then(|meta| meta.modified());
        // A time in the future was written by a wrong clock.
        let recent = |at: SystemTime| at.elapsed().is_ok_and(|age| age < DAILY);
        if last.is_ok_and(recent) {
            return Ok(());
        }
        private::write(&stamp, "").map_err(io("write", &stamp))?;
        // Far ahead of everything that was written, the clock may be wrong; where nobody wrote, nothing has grown.
        let clock = self.perform(facts::Clock {})?;
        if clock.newest_event.is_none_or(|newest| clock.now.since(newest) > IDLE) {
            return Ok(());
        }
        let until = Instant::now() + UNASKED;
        self.forget_until(&self.located().retention, SMALL_BATCH, Some(until), |_, _| {})?;
        self.engine().reclaim(until).map(drop)
    }

    fn forget_until(
        &self,
        retention: &Retention,
        size: usize,
        until: Option<Instant>,
        mut progress: impl FnMut(RetentionKind, u64),
    ) -> Result<gc::Outcome, Error> {
        let now = self.perform(facts::Clock {})?.now;
        let late = || until.is_some_and(|until| Instant::now() >= until);
        let mut gone = Vec::new();
        for what in RetentionKind::ALL {
            let before = now.minus(retention.of(what));
            let mut count = 0;
            while !late() {
                let batch = self.engine().forget(what, before, size)?;
                count += batch as u64;
                progress(what, count);
                if batch < size {
                    break;
                }
            }
            if count > 0 {
                gone.push((what, count));
            }
        }
        if gone.is_empty() { Ok(gc::Outcome { gone }) } else { self.perform(gc::Request { gone }) }
    }
}

impl Engine {
    /// Deletes a little of what has been kept long enough, as seen from `now`; returns the numbers of rows. For a server,
    /// which does this again and again.
    pub fn forget_some(&self, retention: &Retention, now: Timestamp) -> Result<Vec<(RetentionKind, u64)>, Error> {
        let mut gone = Vec::new();
        for what in RetentionKind::ALL {
            let count = self.forget(what, now.minus(retention.of(what)), SMALL_BATCH)? as u64;
            if count > 0 {
                gone.push((what, count));
            }
        }
        Ok(gone)
    }

    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize, Error> {
        match self {
            Self::File(store) if what == RetentionKind::Blobs => {
                blobs::forget(store.path(), before, limit, || Ok(store.referenced_blobs()?))
            }
            Self::File(store) => Ok(store.forget(what, before, limit)?),
            #[cfg(feature = "postgres")]
            Self::Server(store) => Ok(store.forget(what, before, limit)?),
            // It forgets what is old itself.
            Self::Remote(_) => Ok(0),
        }
    }

    fn reclaim(&self, until: Instant) -> Result<u64, Error> {
        match self {
            Self::File(store) => Ok(store.reclaim(until)?),
            #[cfg(feature = "postgres")]
            Self::Server(_) => Ok(0),
            Self::Remote(_) => Ok(0),
        }
    }
}
