//! Keeps the write-ahead log short.
//!
//! A lone process that opens a left-over log must read all of it first, and forgets how much of it was moved
//! into the file before. So SQLite's own checkpoint, which empties nothing, lets the log of lone commands grow
//! without end. Here whoever leaves a long log behind empties it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::open::PATIENCE;

/// How long a process keeps the store open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// Many transactions: the log may grow to SQLite's usual size in between.
    Long,
    /// One, as a command does.
    Brief,
}

impl Stay {
    /// Pages in the log before SQLite moves them into the file by itself; 0 for never.
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
    /// A command leaves at most about 64 pages: a quarter of a millisecond to read back.
    const SHORT: u64 = 64 * 4_120;

    pub(super) fn of(store: &Path, stay: Stay) -> Self {
        let mut file = store.as_os_str().to_owned();
        file.push("-wal");
        Self { file: file.into(), stay }
    }

    /// After a commit: a process that ends soon leaves a short log behind.
    pub(super) fn after_commit(&self, connection: &Connection) {
        if self.stay == Stay::Brief {
            self.leave_short(connection);
        }
    }

    /// Moves a long log into the file and empties it, unless others are reading it just now. It is never
    /// needed for anything but speed, so whatever stands in its way may.
    pub(super) fn leave_short(&self, connection: &Connection) {
        if fs::metadata(&self.file).is_ok_and(|log| log.len() > Self::SHORT)
            && connection.busy_timeout(std::time::Duration::ZERO).is_ok()
        {
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = connection.busy_timeout(PATIENCE);
        }
    }
}
