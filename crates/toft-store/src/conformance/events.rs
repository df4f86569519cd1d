//! Events: without gaps, in order, each operation once.

use toft_core::{
    change::{Receipt, Write},
    id::{OpId, RepositoryId},
    repository::{Place, Scope},
    store::{Access, EventQuery},
    time::Timestamp,
};

use super::{Pair, change};

fn append(pair: &Pair, changes: &[toft_core::change::Change]) {
    let mut tx = pair.writer.begin(Access::Write).unwrap();
    for change in changes {
        tx.apply(change).unwrap();
    }
    tx.commit().unwrap();
}

fn seqs(pair: &Pair, query: &EventQuery) -> Vec<u64> {
    pair.read(|tx| tx.events(query)).into_iter().map(|event| event.seq).collect()
}

pub fn events_are_numbered_without_gaps(pair: &Pair) {
    append(pair, &[change("op_a", 0, "x", vec![]), change("op_a", 1, "x", vec![])]);
    let mut dropped = pair.writer.begin(Access::Write).unwrap();
    dropped.apply(&change("op_lost", 0, "x", vec![])).unwrap();
    drop(dropped);
    append(pair, &[change("op_b", 0, "x", vec![])]);
    assert_eq!(seqs(pair, &EventQuery { limit: 9, ..EventQuery::default() }), [1, 2, 3]);
    let first = pair.read(|tx| tx.events(&EventQuery { limit: 1, ..EventQuery::default() })).remove(0);
    let mut expected = change("op_a", 0, "x", vec![]).event;
    expected.seq = 1;
    assert_eq!(first, expected);
}

pub fn an_operation_is_answered_once(pair: &Pair) {
    let receipt = |outcome: u32| {
        Write::Receipt(Receipt {
            op: OpId::known("op_a"),
            actor: "blue".into(),
            verb: "claim".into(),
            request: "digest".into(),
            outcome: outcome.into(),
            at: Timestamp(1_800_000_000_000),
        })
    };
    pair.write(&[receipt(1)]);
    let mut tx = pair.writer.begin(Access::Write).unwrap();
    assert!(tx.write_derived(&[receipt(2)]).is_err());
    drop(tx);
    let kept = pair.read(|tx| tx.receipt(&OpId::known("op_a"))).unwrap();
    assert_eq!(kept.outcome, serde_json::json!(1));
}

pub fn events_are_found_by_entity_place_and_cursor(pair: &Pair) {
    let mut elsewhere = change("op_c", 0, "x", vec![]);
    elsewhere.event.place = Place { repository: Some(RepositoryId::known("rp_b")), worktree: None };
    append(pair, &[change("op_a", 0, "x", vec![]), change("op_b", 0, "y", vec![]), elsewhere]);
    append(pair, &[change("op_d", 0, "x", vec![])]);
    let query = |entity: Option<&str>, newest, after, limit| EventQuery {
        entity: entity.map(Into::into),
        newest,
        after,
        limit,
        ..EventQuery::default()
    };
    assert_eq!(seqs(pair, &query(Some("x"), false, 0, 9)), [1, 3, 4]);
    assert_eq!(seqs(pair, &query(Some("x"), true, 0, 2)), [3, 4]);
    assert_eq!(seqs(pair, &query(None, false, 2, 9)), [3, 4]);
    assert_eq!(seqs(pair, &query(None, true, 0, 1)), [4]);
    let scope = Scope { repository: Some(RepositoryId::known("rp_b")), worktree: None };
    assert_eq!(seqs(pair, &EventQuery { scope, limit: 9, ..EventQuery::default() }), [3]);
}
