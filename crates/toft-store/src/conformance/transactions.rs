//! Transactions: all or nothing, seen when committed, one writer at a time.

use std::{
    thread,
    time::{Duration, Instant},
};

use toft_core::{
    change::Write,
    id::{TaskId, WorkflowId},
    store::{Access, Result, Store, StoreError},
};

use super::{
    Pair,
    fields::{base, workflow},
};

pub fn a_transaction_that_is_dropped_leaves_nothing(pair: &Pair) {
    let mut tx = pair.writer.begin(Access::Write).unwrap();
    tx.write_derived(&base()).unwrap();
    drop(tx);
    assert!(pair.read(|tx| tx.ids("", 9)).is_empty());
    pair.write(&base());
    assert_eq!(pair.read(|tx| tx.ids("tk_", 9)).len(), 1);
}

pub fn a_reader_sees_what_was_committed_and_nothing_else(pair: &Pair) {
    pair.write(&base());
    assert!(pair.read(|tx| tx.task(&TaskId::known("tk_1"))).is_some());
    assert!(pair.read(|tx| tx.task(&TaskId::known("tk_2"))).is_none());
}

pub fn a_writer_sees_its_own_rows_before_it_commits(pair: &Pair) {
    let mut tx = pair.writer.begin(Access::Write).unwrap();
    tx.write_derived(&base()).unwrap();
    assert!(tx.task(&TaskId::known("tk_1")).unwrap().is_some());
}

pub fn a_commit_moves_the_pulse(pair: &Pair) {
    let before = pair.reader.change_counter().unwrap();
    assert_eq!(pair.reader.change_counter().unwrap(), before);
    pair.write(&base());
    let until = Instant::now() + Duration::from_secs(2);
    while pair.reader.change_counter().unwrap() == before {
        assert!(Instant::now() < until, "nobody heard of it");
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn writers_take_turns_and_lose_no_update(pair: &Pair) {
    const EACH: u32 = 40;
    pair.write(&[Write::Workflow(workflow("wf_1"))]);
    let try_to_add = |store: &dyn Store| -> Result<()> {
        let mut tx = store.begin(Access::Write)?;
        let mut row = tx.workflow(&WorkflowId::known("wf_1"))?.unwrap();
        row.tasks += 1;
        tx.write_derived(&[Write::Workflow(row)])?;
        tx.commit()
    };
    let add = |store: &dyn Store| loop {
        match try_to_add(store) {
            Err(StoreError::Conflict) => {}
            done => return done.unwrap(),
        }
    };
    thread::scope(|scope| {
        for store in [&pair.writer, &pair.reader, &pair.writer, &pair.reader] {
            scope.spawn(move || (0..EACH).for_each(|_| add(store.as_ref())));
        }
    });
    let row = pair.read(|tx| tx.workflow(&WorkflowId::known("wf_1"))).unwrap();
    assert_eq!(row.tasks, workflow("wf_1").tasks + 4 * EACH);
}
