//! Loads a whole space from one snapshot.

use std::time::Instant;

use toft_core::{
    change::Write,
    id::MessageId,
    message::Delivery,
    store::{Result, StoreError},
    time::Timestamp,
};

use super::{OwnedSpace, OwnedState};
use crate::{
    postgres::{
        load::{
            Load, load_agent, load_attempt, load_checkpoint, load_dependency, load_gate, load_landing, load_lease,
            load_message, load_queue_entry, load_repository, load_state, load_task, load_template, load_token,
            load_verdict, load_workflow, load_workspace, load_worktree,
        },
        open::PostgresStore,
        read_set::ReadSet,
        server_time::ServerTime,
        sql,
        wire::only_number,
    },
    rows::Cells,
    unknown::Unknown,
    value::kept,
};

/// Tables whose rows are one JSON text.
const BODIES: [(&str, Load); 12] = [
    ("repositories", load_repository),
    ("worktrees", load_worktree),
    ("workflows", load_workflow),
    ("checkpoints", load_checkpoint),
    ("agents", load_agent),
    ("messages", load_message),
    ("gates", load_gate),
    ("workspaces", load_workspace),
    ("landings", load_landing),
    ("verdicts", load_verdict),
    ("tokens", load_token),
    ("templates", load_template),
];

/// Tables with columns.
const COLUMNS: [(&str, &str, Load); 7] = [
    ("tasks", sql!("owned_tasks"), load_task),
    ("leases", sql!("owned_leases"), load_lease),
    ("attempts", sql!("owned_attempts"), load_attempt),
    ("dependencies", sql!("owned_dependencies"), load_dependency),
    ("states", sql!("owned_states"), load_state),
    ("deliveries", sql!("owned_deliveries"), load_delivery),
    ("queue", sql!("owned_queue"), load_queue_entry),
];

impl<'s> OwnedSpace<'s> {
    /// Takes a space into memory, unless it has more tasks than `most`.
    pub fn take(store: &'s PostgresStore, most: usize) -> Result<Option<Self>> {
        store.now(sql!("version_begin"), &kept![store.space()])?;
        let counted = store.now(sql!("owned_size"), &kept![store.space(), most as u64 + 1])?;
        if only_number(&counted)?.unwrap_or_default() > most as i64 {
            return Ok(None);
        }
        let state = load(store)?;
        Ok(Some(Self { store, state: state.into(), one_by_one: false }))
    }

    /// Throws everything away and loads the space as it is now.
    pub(super) fn load_again(&self) -> Result<()> {
        let state = load(self.store)?;
        *self.lock() = state;
        Ok(())
    }
}

fn load(store: &PostgresStore) -> Result<OwnedState> {
    // What was committed before, by a process that is gone, is then also where it has to be before anybody relies on it.
    store.wait_for_standby()?;
    let mut wire = store.second_wire("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let space = kept![store.space()];
    let moment = store.send(&mut wire, sql!("moment"), &space)?;
    let moment = moment.first().map(ServerTime::of).transpose()?.ok_or(StoreError::Conflict)?;
    let since = Instant::now();
    let version = only_number(&store.send(&mut wire, sql!("version_get"), &space)?)?.ok_or(StoreError::Conflict)?;
    let (mut reads, unknown) = (ReadSet::default(), Unknown::of_odd_rows());
    let bodies = BODIES.map(|(table, load)| (table, format!("SELECT body FROM {table} WHERE space = $1"), load));
    let columns = COLUMNS.map(|(table, text, load)| (table, text.to_owned(), load));
    for (table, text, load) in bodies.into_iter().chain(columns) {
        for row in store.send(&mut wire, &text, &space)? {
            load(&mut reads, &mut Cells::of(table, &row).keeping(Some(&unknown)))?;
        }
    }
    store.send(&mut wire, "ROLLBACK", &[])?;
    Ok(OwnedState {
        reads,
        unknown,
        version,
        newest_event: moment.newest_event.map(Timestamp),
        server_time: (moment.wall, since),
        new_ops: Default::default(),
        taken_lanes: Default::default(),
        went_outside: false,
    })
}

fn load_delivery(reads: &mut ReadSet, cells: &mut Cells<'_>) -> Result<()> {
    let (recipient, rank, message) = (cells.text()?, cells.text()?, MessageId::known(cells.text()?));
    let state = serde_json::Value::String(cells.text()?);
    let state = serde_json::from_value(state).map_err(|error| StoreError::Unreadable {
        table: "deliveries".into(),
        id: message.to_string(),
        cause: error.to_string(),
    })?;
    let read_at = cells.optional_int()?.map(Timestamp);
    reads.take(Write::Delivery(Delivery { message, recipient, state, rank, read_at }))
}
