//! The conformance suite on memory, on a SQLite file, on SQLite with two connections, on PostgreSQL, and on
//! PostgreSQL behind a pooler, and on a space of PostgreSQL that is held in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stderr, reason = "whoever skips a test is told")]

use std::sync::Arc;

use toft_core::{
    change::{Receipt, Write},
    id::OpId,
    store::{Access, Store as _},
    testing::{ManualClock, MemoryStore},
    time::Timestamp,
};
use toft_store::{PostgresStore, SqliteStore, conformance::Pair, postgres::OwnedSpace, store_conformance};

fn memory() -> Option<Pair> {
    let clock = ManualClock::default();
    let store = Arc::new(MemoryStore::new(clock.clone()));
    Some(Pair { writer: store.clone(), reader: store, clock, keep: Box::new(()) })
}

fn sqlite_file() -> Option<Pair> {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::default();
    let path = dir.path().join("toft.db");
    let store = Arc::new(SqliteStore::create_with(&path, Arc::new(clock.clone())).unwrap());
    Some(Pair { writer: store.clone(), reader: store, clock, keep: Box::new(dir) })
}

fn sqlite_two_connections() -> Option<Pair> {
    let pair = sqlite_file()?;
    let path = pair.keep.downcast_ref::<tempfile::TempDir>().unwrap().path().join("toft.db");
    let reader = Arc::new(SqliteStore::open_with(&path, Arc::new(pair.clock.clone())).unwrap());
    Some(Pair { reader, ..pair })
}

/// A schema of its own on the server that `cargo xtask` started, and two connections to it.
fn postgres(server: Option<String>) -> Option<Pair> {
    let server = server?;
    let clock = ManualClock::default();
    let schema = format!("c{}_{}", std::process::id(), std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos());
    let url = format!("{server}?schema={schema}");
    let open = || Arc::new(PostgresStore::create_with(&url, Arc::new(clock.clone())).unwrap());
    let (writer, reader) = (open(), open());
    Some(Pair { writer, reader, clock, keep: Box::new(()) })
}

/// A space that is held in memory by the writer; the reader sees what was put down.
fn owned(server: Option<String>) -> Option<Pair> {
    let server = server?;
    let clock = ManualClock::default();
    let schema = format!("o{}_{}", std::process::id(), std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos());
    let url = format!("{server}?schema={schema}");
    let open = || PostgresStore::create_with(&url, Arc::new(clock.clone())).unwrap();
    // It lives as long as the test's process.
    let store: &'static PostgresStore = Box::leak(Box::new(open()));
    let writer = Arc::new(OwnedSpace::take(store, 1_000).unwrap().unwrap().one_by_one());
    Some(Pair { writer, reader: Arc::new(open()), clock, keep: Box::new(()) })
}

/// The server to test against; without one the test is skipped on a developer's machine, and fails in CI.
fn server(name: &str) -> Option<String> {
    let server = std::env::var(name).ok();
    if server.is_none() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "{name} is not set, and CI tests everything");
        eprintln!("skipped: no PostgreSQL; `cargo xtask check` starts one where it is installed");
    }
    server
}

store_conformance!(memory_store, crate::memory());
store_conformance!(sqlite, crate::sqlite_file());
store_conformance!(sqlite_with_two_connections, crate::sqlite_two_connections());
store_conformance!(postgres, crate::postgres(crate::server("TOFT_TEST_POSTGRES")));
store_conformance!(postgres_behind_a_pooler, crate::postgres(crate::server("TOFT_TEST_PGBOUNCER")));
store_conformance!(postgres_in_memory, crate::owned(crate::server("TOFT_TEST_POSTGRES")));

fn put_receipt(store: &SqliteStore, op: &str) {
    let (op, text) = (OpId::known(op), String::new());
    let receipt = Receipt {
        op,
        actor: text.clone(),
        verb: text.clone(),
        request: text,
        outcome: serde_json::Value::Null,
        at: Timestamp(1),
    };
    let mut tx = store.begin(Access::Write).unwrap();
    tx.write_derived(&[Write::Receipt(receipt)]).unwrap();
    tx.commit().unwrap();
}

#[test]
fn reads_in_a_span_share_a_snapshot_until_it_is_ended_or_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("toft.db");
    let (here, there) = (SqliteStore::create(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let sees = |op: &str| here.begin(Access::Read).unwrap().receipt(&OpId::known(op)).unwrap().is_some();
    let span = here.read_span();
    let inner = here.read_span();
    assert!(!sees("a"));
    put_receipt(&there, "a");
    drop(inner);
    assert!(!sees("a"), "the outer span still has its snapshot");
    here.end_snapshot();
    assert!(sees("a"), "the next read begins another");
    put_receipt(&there, "b");
    assert!(!sees("b"));
    put_receipt(&here, "c");
    assert!(sees("b") && sees("c"), "a write is made over what all have written");
    put_receipt(&there, "d");
    drop(span);
    assert!(sees("d"), "without a span each read is by itself");
    put_receipt(&there, "e");
    assert!(sees("e"));
}
