//! The conformance suite on memory, on a SQLite file, and on SQLite with two connections.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use toft_core::testing::{ManualClock, MemoryStore};
use toft_store::{SqliteStore, conformance::Pair, store_conformance};

fn memory() -> Pair {
    let clock = ManualClock::default();
    let store = Arc::new(MemoryStore::new(clock.clone()));
    Pair { writer: store.clone(), reader: store, clock, keep: Box::new(()) }
}

fn sqlite_file() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::default();
    let path = dir.path().join("toft.db");
    let store = Arc::new(SqliteStore::create_with(&path, Arc::new(clock.clone())).unwrap());
    Pair { writer: store.clone(), reader: store, clock, keep: Box::new(dir) }
}

fn sqlite_two_connections() -> Pair {
    let pair = sqlite_file();
    let path = pair.keep.downcast_ref::<tempfile::TempDir>().unwrap().path().join("toft.db");
    let reader = Arc::new(SqliteStore::open_with(&path, Arc::new(pair.clock.clone())).unwrap());
    Pair { reader, ..pair }
}

store_conformance!(memory_store, crate::memory());
store_conformance!(sqlite, crate::sqlite_file());
store_conformance!(sqlite_with_two_connections, crate::sqlite_two_connections());
