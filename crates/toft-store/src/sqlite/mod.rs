//! SQLite: one file, many processes, no daemon.
//!
//! `open.rs` checks the file and sets the connection up, `turn.rs` makes writers wait in order,
//! `wal.rs` keeps the log short, `tx.rs` answers questions and puts rows down; `index` is what ledgers say.

pub mod foreign;
pub mod index;
mod migrate;
mod open;
mod turn;
mod tx;
mod wal;

pub use migrate::SCHEMA_VERSION;
pub use open::SqliteStore;

use toft_core::store::StoreError;

/// A query that only this engine has.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("queries/", $name, ".sql"))
    };
}
use sql;

/// Says what was being done when SQLite failed.
fn failed(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| match &error {
        rusqlite::Error::SqliteFailure(code, _) if code.code == rusqlite::ErrorCode::DatabaseBusy => {
            StoreError::Busy { waited_ms: open::PATIENCE.as_millis() as u64 }
        }
        _ => StoreError::Failed { doing: doing.to_owned(), cause: error.to_string() },
    }
}
