//! One verb on a space in memory. If it does not commit, what it changed is taken back.

use std::sync::MutexGuard;

use toft_core::{
    answer_from_tables,
    change::{Change, Event, Receipt, Write},
    id::OpId,
    store::{self, Access, EventQuery, GroupEnd, GroupStore as _, Result, StoreError, StoreTx},
    tables::RowKey,
    time::{Now, Timestamp},
};

use super::{OwnedSpace, OwnedState};

pub(super) struct OwnedTx<'a> {
    space: &'a OwnedSpace<'a>,
    state: Option<MutexGuard<'a, OwnedState>>,
    access: Access,
    /// What was there before, and whether it had been written before; in order.
    undo: Vec<(RowKey, Option<Write>, bool)>,
    /// The number of events before.
    events: usize,
    newest_event: Option<Timestamp>,
}

impl<'a> OwnedTx<'a> {
    pub(super) fn new(space: &'a OwnedSpace<'a>, state: MutexGuard<'a, OwnedState>, access: Access) -> Self {
        let (events, newest_event) = (state.reads.events.len(), state.newest_event);
        Self { space, state: Some(state), access, undo: Vec::new(), events, newest_event }
    }

    fn state(&mut self) -> Result<&mut OwnedState> {
        self.state.as_deref_mut().ok_or(StoreError::Conflict)
    }

    /// Asks the store itself, which knows nothing of what is not put down yet.
    fn ask_store<T>(&mut self, question: impl Fn(&mut dyn StoreTx) -> Result<T>) -> Result<T> {
        let space = self.space;
        let state = self.state()?;
        if !state.reads.unchanged() {
            state.went_outside = true;
            return Err(StoreError::Failed { doing: "answer".into(), cause: "it is not in memory".into() });
        }
        store::ask(space.store, question)
    }

    fn write(&mut self, write: &Write) -> Result<()> {
        let key = RowKey::of(write);
        if let Write::Receipt(row) = write
            && self.receipt(&row.op)?.is_some()
        {
            return Err(StoreError::Failed { doing: "answer".into(), cause: "it was answered before".into() });
        }
        let state = self.state()?;
        let (was, touched) = (state.reads.tables.row(&key), state.reads.is_touched(&key));
        if let (Write::DropQueue(_), Some(Write::Queue(entry))) = (write, &was) {
            state.taken_lanes.insert(entry.lane.clone());
        }
        state.reads.write(write)?;
        self.undo.push((key, was, touched));
        Ok(())
    }
}

impl Drop for OwnedTx<'_> {
    fn drop(&mut self) {
        let (undo, events, newest) = (std::mem::take(&mut self.undo), self.events, self.newest_event);
        let Some(state) = self.state.as_deref_mut() else { return };
        for (key, was, touched) in undo.into_iter().rev() {
            state.reads.take_back(&key, was, touched);
        }
        state.reads.events.truncate(events);
        state.newest_event = newest;
    }
}

impl StoreTx for OwnedTx<'_> {
    answer_from_tables!(self => self.state()?.reads.tables);

    fn now(&mut self) -> Result<Now> {
        let space = self.space;
        let state = self.state()?;
        Ok(space.now(state))
    }

    fn newest_event_at(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.state()?.newest_event)
    }

    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>> {
        let space = self.space;
        let state = self.state()?;
        match state.reads.tables.receipt(op)? {
            None if !state.new_ops.contains(op) => store::ask(space.store, |tx| tx.receipt(op)),
            known => Ok(known),
        }
    }

    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        self.state()?.reads.tables.ids(prefix, limit)
    }

    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>> {
        if !query.newest || query.entity.is_none() {
            return self.ask_store(|tx| tx.events(query));
        }
        let space = self.space;
        // The newest of one thing: those on the server, and those that are not put down yet.
        let mut events = store::ask(space.store, |tx| tx.events(query))?;
        let pending = self.state()?.reads.events.iter();
        let about = |event: &&Event| query.entity.as_ref() == Some(&event.entity) && query.scope.covers(&event.place);
        events.extend(pending.filter(about).cloned());
        let surplus = events.len().saturating_sub(query.limit);
        Ok(events.split_off(if query.limit == 0 { 0 } else { surplus }))
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        self.write_derived(&change.writes)?;
        let state = self.state()?;
        state.newest_event = Some(change.event.at);
        state.reads.events.push(change.event.clone());
        Ok(())
    }

    fn write_derived(&mut self, writes: &[Write]) -> Result<()> {
        if self.access == Access::Read {
            return Err(StoreError::Failed { doing: "write".into(), cause: "the transaction only reads".into() });
        }
        writes.iter().try_for_each(|write| self.write(write))
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        let space = self.space;
        self.undo.clear();
        // Its guard goes before the group is put down.
        drop(self.state.take());
        match space.one_by_one.then(|| space.put_down()) {
            Some(GroupEnd::Stale | GroupEnd::Unknown) => {
                space.load_again()?;
                Err(StoreError::Conflict)
            }
            Some(GroupEnd::Failed(error)) => Err(error),
            Some(GroupEnd::Done) | None => Ok(()),
        }
    }
}
