//! Puts a group down: lock, check the version, write the rows, move the version, commit; all in one round trip.

use toft_core::{
    change::Write,
    id::OpId,
    store::{GroupEnd, GroupStore, Result, StoreError},
};

use super::{
    OwnedSpace, OwnedState,
    merge::{Statements, array},
};
use crate::{
    postgres::{
        load::load_receipt,
        migrate,
        read_set::ReadSet,
        server_time::ServerTime,
        sql,
        wire::{BEGIN, Statement, WireError},
    },
    query::Query,
    rows::Cells,
    value::{Bind as _, Value, kept},
    write,
};

/// One group in this many raises the floors of the lanes that it took from.
const FLOOR_EVERY: u64 = 8;

impl GroupStore for OwnedSpace<'_> {
    fn expect(&self, ops: &[OpId]) -> Result<()> {
        let texts: Vec<Value<'static>> = ops.iter().map(|op| op.as_str().bind().keep()).collect();
        let asked = kept![self.store.space(), array(texts.iter())];
        let rows = self.store.now(sql!("receipts_of"), &asked)?;
        let mut state = self.lock();
        state.new_ops = ops.iter().cloned().collect();
        for row in &rows {
            load_receipt(&mut state.reads, &mut Cells::of("receipts", row))?;
        }
        Ok(())
    }

    fn went_outside(&self) -> bool {
        std::mem::take(&mut self.lock().went_outside)
    }

    fn put_down(&self) -> GroupEnd {
        let mut state = self.lock();
        let (end, wall) = self.send_group(&state).unwrap_or_else(|error| (GroupEnd::Failed(error), None));
        if matches!(end, GroupEnd::Done) {
            self.keep_up(&mut state, wall);
            if !state.reads.unchanged() {
                state.version += 1;
            }
            state.reads.settle();
            state.new_ops.clear();
            state.taken_lanes.clear();
        }
        end
    }
}

impl OwnedSpace<'_> {
    /// Sends the group; also returns the time on the server, if it is known.
    fn send_group(&self, state: &OwnedState) -> Result<(GroupEnd, Option<i64>)> {
        let (mut batch, changes) = (Vec::<Statement>::new(), !state.reads.unchanged());
        let store = self.store;
        batch.push((BEGIN.to_owned(), Vec::new()));
        let mut wire = store.open_wire()?;
        let Some(open) = wire.as_mut() else { return Ok((GroupEnd::Stale, None)) };
        batch.extend(open.local_settings.clone().map(|settings| (settings, Vec::new())));
        if changes {
            batch.push(store.of_space(sql!("turn"), &[]));
        }
        batch.push(store.of_space(sql!("version_stands"), &kept![state.version]));
        batch.push((sql!("schema_stands").to_owned(), kept![migrate::SCHEMA_VERSION].to_vec()));
        if changes {
            self.rows(state, &mut batch)?;
            batch.push(store.of_space(sql!("version_move"), &[]));
        }
        batch.push(store.of_space(sql!("moment"), &[]));
        let moment = batch.len() - 1;
        batch.push(("COMMIT".to_owned(), Vec::new()));
        let sends: Vec<_> = batch.iter().map(|(text, values)| (text.as_str(), values.as_slice())).collect();
        open.take_warning();
        let answered = open.send(&sends);
        let warned = open.take_warning();
        let answers = match answered {
            Ok(answers) if !warned => answers,
            Ok(_) | Err(WireError::Lost(_)) => {
                *wire = None;
                return Ok((GroupEnd::Unknown, None));
            }
            Err(trouble) => {
                let ended = open.end_transaction(true);
                if !ended {
                    *wire = None;
                }
                let end = match store.judge(&mut wire, &trouble) {
                    StoreError::Conflict => GroupEnd::Stale,
                    error => GroupEnd::Failed(error),
                };
                store.clear_retries();
                return Ok((end, None));
            }
        };
        // It is committed: nothing fails from here on.
        let moment = answers.get(moment).and_then(|rows| ServerTime::of(rows.first()?).ok());
        if changes {
            store.committed();
        }
        if changes && moment.as_ref().is_some_and(|moment| moment.waiting) {
            let channel = store.channel();
            // If it fails, waiting processes look by themselves a little later.
            let _ = open.send(&[(sql!("notify"), &kept![channel])]);
        }
        Ok((GroupEnd::Done, moment.map(|moment| moment.wall)))
    }

    fn rows(&self, state: &OwnedState, batch: &mut Vec<Statement>) -> Result<()> {
        let (reads, store, mut statements) = (&state.reads, self.store, Statements::default());
        let mut execute = |query: Query, values: &[Value<'_>]| {
            statements.add(query, values);
            Ok(())
        };
        for row in reads.writes() {
            match &row {
                // The whole state, as rows of one statement.
                Write::TaskState(id, _) if let Some(task) = reads.tables.tasks.get(id) => {
                    write::whole_task_state(&mut execute, &state.unknown, task)?;
                }
                row => write::put(&mut execute, &state.unknown, row)?,
            }
        }
        statements.merged(store.space(), batch);
        if store.every(FLOOR_EVERY) {
            let raise = |lane| store.of_space(sql!("queue_floor_raise"), &kept![lane]);
            batch.extend(state.taken_lanes.iter().map(raise));
        }
        for (workflow, changes) in reads.changes() {
            let values: Vec<Value<'_>> =
                std::iter::once(workflow.as_str().bind()).chain(changes.iter().map(|count| count.bind())).collect();
            batch.push(store.of_space(sql!("progress_add"), &values));
        }
        batch.extend(self.events(reads)?);
        Ok(())
    }

    /// All events of the group in one statement.
    fn events(&self, reads: &ReadSet) -> Result<Option<Statement>> {
        let mut rows: Vec<Vec<Value<'static>>> = Vec::with_capacity(reads.events.len());
        for event in &reads.events {
            let mut add = |_: Query, values: &[Value<'_>]| {
                rows.push(values.iter().map(Value::keep).collect());
                Ok(())
            };
            write::append(&mut add, event)?;
        }
        let count = rows.first().map_or(0, Vec::len);
        let arrays: Vec<String> = (0..count).map(|column| array(rows.iter().map(|row| &row[column]))).collect();
        let values: Vec<Value<'_>> = arrays.iter().map(|text| text.bind()).collect();
        Ok((count > 0).then(|| self.store.of_space(sql!("events_append"), &values)))
    }
}
