//! SQLite: one file, many processes, no daemon.
//!
//! `file.rs` checks and creates the file, `open.rs` sets up the connection, `turn.rs` queues writers, `writer.rs` finds
//! the process that holds the lock, `wal.rs` keeps the log short, `tx.rs` answers queries and writes rows; `index`
//! contains the content of ledgers.

pub mod archive;
mod file;
pub mod foreign;
pub mod index;
mod migrate;
mod open;
mod read_only;
mod space;
mod turn;
mod tx;
mod wal;
mod writer;

pub use migrate::SCHEMA_VERSION;
pub use open::{ReadSpan, SqliteStore};

use rusqlite::ErrorCode;
use toft_core::store::{Fault, StoreError};

/// A query that only this engine has.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("queries/", $name, ".sql"))
    };
}
use sql;

/// Maps an SQLite error, with the operation that failed.
fn failed(doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| {
        let blocked = |fault| StoreError::Blocked { fault, doing: doing.to_owned(), cause: error.to_string() };
        let code = match &error {
            rusqlite::Error::SqliteFailure(code, _) => Some(code.code),
            rusqlite::Error::SqlInputError { error, .. } => Some(error.code),
            _ => None,
        };
        match code {
            Some(ErrorCode::DatabaseBusy) => {
                StoreError::Busy { waited_ms: open::PATIENCE.as_millis() as u64, writer: None }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Damaged { place: format!("while toft tried to {doing}"), reason: error.to_string() }
            }
            Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => blocked(Fault::AccessDenied),
            Some(ErrorCode::ReadOnly) => blocked(Fault::ReadOnly),
            Some(ErrorCode::DiskFull) => blocked(Fault::NoSpace),
            _ => StoreError::Failed { doing: doing.to_owned(), cause: error.to_string() },
        }
    }
}
