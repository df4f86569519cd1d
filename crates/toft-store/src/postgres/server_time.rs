//! The clock and the snapshot of the server at the beginning of a transaction.

use toft_core::store::Result;

use super::wire::WireRow;

/// The state of the server when the transaction began.
#[derive(Clone, Debug)]
pub(super) struct ServerTime {
    pub(super) wall: i64,
    pub(super) snapshot: String,
    pub(super) pid: i64,
    pub(super) began: i64,
    pub(super) waiting: bool,
    pub(super) schema: i64,
    /// Wall-clock time of the newest event.
    pub(super) newest_event: Option<i64>,
}

impl ServerTime {
    pub(super) fn of(row: &WireRow) -> Result<Self> {
        Ok(Self {
            wall: row.number(0)?,
            snapshot: row.word(1)?.to_owned(),
            pid: row.number(2)?,
            began: row.number(3)?,
            waiting: row.number(4)? > 0,
            schema: row.number(5)?,
            newest_event: crate::value::Row::int(row, 6)?,
        })
    }
}
