//! Keeps the write-ahead log short.
//!
//! A single process that opens an existing log must read all of it first, and does not know how much of it was already
//! checkpointed. So SQLite's own checkpoint, which does not truncate the log, lets the log of single commands grow
//! without limit. Here the process that leaves a long log truncates it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::open::PATIENCE;

/// How long a process keeps the store open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Many transactions: the log may grow to SQLite's default size in between.
    Long,
    /// One transaction, as in a command.
    Brief,
}

impl Stay {
    /// Number of pages in the log before SQLite checkpoints automatically; 0 for never.
    pub(super) fn autocheckpoint(self) -> i32 {
        match self {
            Self::Long => 1_000,
            Self::Brief => 0,
        }
    }
}

/// The log of one store.
#[derive(Debug)]
pub(super) struct Wal {
    file: PathBuf,
    stay: Stay,
}

impl Wal {
    /// A command leaves at most about 64 pages, which take a quarter of a millisecond to read.
    const SHORT: u64 = 64 * 4_120;

    pub(super) fn of(store: &Path, stay: Stay) -> Self {
        let mut file = store.as_os_str().to_owned();
        file.push("-wal");
        Self { file: file.into(), stay }
    }

    /// After a commit: a short-lived process truncates a long log.
    pub(super) fn after_commit(&self, connection: &Connection) {
        if self.stay == Stay::Brief {
            self.leave_short(connection);
        }
    }

    /// Checkpoints a long log and truncates it, unless other processes are reading it. This is only needed for speed,
    /// so failures are ignored.
    pub(super) fn leave_short(&self, connection: &Connection) {
        if fs::metadata(&self.file).is_ok_and(|log| log.len() > Self::SHORT)
            && connection.busy_timeout(std::time::Duration::ZERO).is_ok()
        {
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = connection.busy_timeout(PATIENCE);
        }
    }
}
