//! SQLite: one file, many processes, no daemon.
//!
//! `open.rs` checks the file and sets the connection up, `turn.rs` makes writers wait in order,
//! `wal.rs` keeps the log short, `tx.rs` answers questions, `write.rs` puts rows down, `rows.rs` translates
//! between the two.

mod migrate;
mod open;
mod rows;
mod turn;
mod tx;
mod wal;
mod write;

pub use migrate::SCHEMA_VERSION;
pub use open::SqliteStore;

/// The text of a query, by its file name.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("queries/", $name, ".sql"))
    };
}
use sql;
use toft_core::store::StoreError;

/// Says what was being done when SQLite failed.
fn failed(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| match &error {
        rusqlite::Error::SqliteFailure(code, _) if code.code == rusqlite::ErrorCode::DatabaseBusy => {
            StoreError::Busy { waited_ms: open::PATIENCE.as_millis() as u64 }
        }
        _ => StoreError::Failed { doing: doing.to_owned(), cause: error.to_string() },
    }
}
