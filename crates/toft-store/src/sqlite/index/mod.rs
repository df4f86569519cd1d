//! The index of ledgers: the content of their lines in columns that can be queried. All of it is derived.
//!
//! `issues.rs` writes and queries issues, `settle.rs` updates what is derived from them.

mod issues;
mod settle;

use rusqlite::{Connection, OptionalExtension as _, params};
use toft_core::store::{Access, Result, StoreTx as _};

pub use self::{
    issues::{AssignedTo, Indexed, IssueFilter},
    settle::Around,
};
use super::{SqliteStore, failed, tx::SqliteTx};

/// The state of a ledger's file when it was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Device and inode number.
    pub identity: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// Change time, in nanoseconds.
    pub written: i64,
    /// When it was examined, in nanoseconds.
    pub looked: i64,
    /// Number of bytes that were read.
    pub ingested: u64,
    /// A fingerprint of the text before that position.
    pub tail: String,
    /// The newest clock in it.
    pub newest: String,
    /// Lines that could not be read, as JSON.
    pub troubles: String,
}

/// A transaction on the index.
pub struct IndexTx<'a>(SqliteTx<'a>);

impl SqliteStore {
    /// Begins a transaction on the index.
    pub fn index(&self, access: Access) -> Result<IndexTx<'_>> {
        Ok(IndexTx(self.begin_derived(access)?))
    }
}

impl IndexTx<'_> {
    /// Commits the changes.
    pub fn commit(self) -> Result<()> {
        Box::new(self.0).commit()
    }

    fn connection(&self) -> &Connection {
        self.0.connection()
    }

    /// The stored state of a file.
    pub fn file(&self, ledger: &str, file: &str) -> Result<Option<FileState>> {
        let sql = "SELECT device, inode, size, written, looked, ingested, tail, newest, troubles FROM ledger_files WHERE ledger = ?1 AND file = ?2";
        let doing = failed("read the index");
        let mut statement = self.connection().prepare_cached(sql).map_err(&doing)?;
        let found = statement.query_row(params![ledger, file], |row| {
            Ok(FileState {
                identity: (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64),
                size: row.get::<_, i64>(2)? as u64,
                written: row.get(3)?,
                looked: row.get(4)?,
                ingested: row.get::<_, i64>(5)? as u64,
                tail: row.get(6)?,
                newest: row.get(7)?,
                troubles: row.get(8)?,
            })
        });
        found.optional().map_err(doing)
    }

    /// Stores the state of a file.
    pub fn put_file(&self, ledger: &str, file: &str, state: &FileState) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO ledger_files (ledger, file, device, inode, size, written, looked, ingested, tail, newest, troubles) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let FileState { identity, size, written, looked, ingested, tail, newest, troubles } = state;
        let values = params![
            ledger,
            file,
            identity.0 as i64,
            identity.1 as i64,
            *size as i64,
            written,
            looked,
            *ingested as i64,
            tail,
            newest,
            troubles
        ];
        self.execute(sql, values).map(drop)
    }

    /// Deletes the state of a file.
    pub fn drop_file(&self, ledger: &str, file: &str) -> Result<()> {
        self.execute("DELETE FROM ledger_files WHERE ledger = ?1 AND file = ?2", params![ledger, file]).map(drop)
    }

    /// Files with a stored state, each with its ledger.
    pub fn files(&self) -> Result<Vec<(String, String)>> {
        self.rows("SELECT ledger, file FROM ledger_files", [], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn execute(&self, sql: &'static str, values: impl rusqlite::Params) -> Result<usize> {
        let doing = failed("write the index");
        self.connection().prepare_cached(sql).map_err(&doing)?.execute(values).map_err(doing)
    }

    fn rows<T>(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        let doing = failed("read the index");
        let mut statement = self.connection().prepare_cached(sql).map_err(&doing)?;
        let rows = statement.query_map(values, read).map_err(&doing)?;
        rows.collect::<rusqlite::Result<_>>().map_err(doing)
    }
}
