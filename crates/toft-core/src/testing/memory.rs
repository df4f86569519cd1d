//! The memory store: the simplest implementation of a store. Other stores are compared with it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::now_at;
use crate::{
    answer_from_tables,
    change::{Change, Event, Receipt, Write},
    id::OpId,
    retention::RetentionKind,
    store::{Access, EventQuery, Result, Store, StoreError, StoreTx},
    tables::Tables,
    time::{Now, Timestamp, millis},
};

/// A clock that moves only on request.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Now>>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(now_at(0))))
    }
}

impl ManualClock {
    /// The current time.
    pub fn now(&self) -> Now {
        self.lock().clone()
    }

    /// Advances both clocks.
    pub fn advance(&self, span: Duration) {
        let mut now = self.lock();
        now.wall = now.wall.plus(span);
        now.tick.ms += millis(span);
    }

    /// Sets both clocks, as if another machine asked.
    pub fn set(&self, now: Now) {
        *self.lock() = now;
    }

    /// Steps the wall clock by this many milliseconds; the monotonic clock does not move.
    pub fn step_wall(&self, ms: i64) {
        self.lock().wall.0 += ms;
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All rows in memory, one transaction at a time.
pub struct MemoryStore {
    tables: Mutex<Tables>,
    clock: ManualClock,
    commits: AtomicU64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: ManualClock) -> Self {
        Self { tables: Mutex::default(), clock, commits: AtomicU64::new(0) }
    }
}

impl Store for MemoryStore {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        let shared = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = shared.clone();
        Ok(Box::new(MemoryTx { shared, tables, access, clock: &self.clock, commits: &self.commits }))
    }

    fn change_counter(&self) -> Result<u64> {
        Ok(self.commits.load(Ordering::SeqCst))
    }

    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize> {
        Ok(self.tables.lock().unwrap_or_else(PoisonError::into_inner).forget(
            what,
            before,
            self.clock.now().wall,
            limit,
        ))
    }
}

struct MemoryTx<'a> {
    shared: MutexGuard<'a, Tables>,
    tables: Tables,
    access: Access,
    clock: &'a ManualClock,
    commits: &'a AtomicU64,
}

impl StoreTx for MemoryTx<'_> {
    answer_from_tables!(self => self.tables);

    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>> {
        self.tables.receipt(op)
    }

    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        self.tables.ids(prefix, limit)
    }

    fn newest_event_at(&mut self) -> Result<Option<Timestamp>> {
        self.tables.newest_event_at()
    }

    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>> {
        self.tables.events(query)
    }

    fn now(&mut self) -> Result<Now> {
        Ok(self.clock.now())
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        self.write_derived(&change.writes)?;
        let newest = self.tables.events.last().map_or(0, |event| event.seq);
        let event = Event { seq: newest + 1, ..change.event.clone() };
        self.tables.events.push(event);
        Ok(())
    }

    fn write_derived(&mut self, writes: &[Write]) -> Result<()> {
        if self.access == Access::Read {
            return Err(StoreError::Failed { doing: "write".into(), cause: "the transaction only reads".into() });
        }
        writes.iter().try_for_each(|write| self.tables.write(write))
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        if self.access == Access::Write {
            *self.shared = std::mem::take(&mut self.tables);
            self.commits.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }
}
