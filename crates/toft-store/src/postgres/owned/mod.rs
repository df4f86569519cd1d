//! A space in memory, held by the one process that writes to it most.
//!
//! Verbs run one after another on rows in memory. What they change is put down in groups: one transaction for all verbs
//! that came together. Nobody gets an answer before its group is committed.
//!
//! What makes it safe is not that there is one owner, but the version of the space: every commit moves it, and a group is
//! committed only if nothing else was since. If that fails, everything here may be out of date, and is thrown away.
//!
//! `load.rs` reads a space, `tx.rs` answers from it, `put.rs` puts groups down, `merge.rs` makes one statement of many.

mod load;
mod merge;
mod put;
mod tx;

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use toft_core::{
    id::OpId,
    retention::RetentionKind,
    store::{Access, Result, Store, StoreTx},
    time::{Now, Timestamp},
};

use self::tx::OwnedTx;
use super::{open::PostgresStore, read_set::ReadSet};
use crate::unknown::Unknown;

/// A space in memory.
pub struct OwnedSpace<'s> {
    store: &'s PostgresStore,
    state: Mutex<OwnedState>,
    /// Every transaction is a group of its own.
    one_by_one: bool,
}

struct OwnedState {
    /// All rows but the log and receipts, and which of them were changed since the last group.
    reads: ReadSet,
    unknown: Unknown,
    /// The version of the space that these rows are.
    version: i64,
    /// When the newest event happened.
    newest_event: Option<Timestamp>,
    /// A time on the server, and when it was that here; from there on the clock of this process counts, which never goes back.
    server_time: (i64, Instant),
    /// Operations that have no receipt on the server.
    new_ops: BTreeSet<OpId>,
    /// Lanes from which tasks were taken.
    taken_lanes: BTreeSet<String>,
    /// A verb asked what is not in memory.
    went_outside: bool,
}

impl OwnedSpace<'_> {
    /// Puts every transaction down by itself, when it commits.
    #[must_use]
    pub fn one_by_one(mut self) -> Self {
        self.one_by_one = true;
        self
    }

    fn lock(&self) -> MutexGuard<'_, OwnedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, state: &OwnedState) -> Now {
        if let Some(now) = self.store.own_clock() {
            return now;
        }
        let (wall, since) = state.server_time;
        let passed = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        Now { wall: Timestamp(wall.saturating_add(passed)), tick: self.store.tick() }
    }
}

impl OwnedSpace<'_> {
    /// Follows the server's clock forward: this process may have been suspended.
    fn keep_up(&self, state: &mut OwnedState, wall: Option<i64>) {
        if let Some(wall) = wall.filter(|wall| *wall > self.now(state).wall.0) {
            state.server_time = (wall, Instant::now());
        }
    }
}

impl Store for OwnedSpace<'_> {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        Ok(Box::new(OwnedTx::new(self, self.lock(), access)))
    }

    fn change_counter(&self) -> Result<u64> {
        self.store.change_counter()
    }

    fn look_again_after(&self) -> Duration {
        self.store.look_again_after()
    }

    /// Rows are forgotten on the server, which makes those here out of date.
    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize> {
        let gone = self.store.forget(what, before, limit)?;
        self.load_again()?;
        Ok(gone)
    }
}
