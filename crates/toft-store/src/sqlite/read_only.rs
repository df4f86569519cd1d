//! Reads a store that cannot be written: another user's, on a read-only file system, or seen from a sandbox.
//!
//! SQLite reads a WAL store without write access if its shared memory file exists: it maps that file for reading, or,
//! if no writer is connected, keeps an index of the log in memory. If that file is missing and cannot be created, a
//! private copy of store and log is read instead. `immutable=1` would be wrong in both cases: it ignores the log, and
//! another mount of the same file system may be writing.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    time::SystemTime,
};

use rusqlite::{Connection, OpenFlags};
use toft_core::store::{Result, StoreError};

use super::{failed, file, migrate, open::set_up, wal::Stay};
use crate::private::{self, TempDir};

/// How often a copy is restarted because the store changed in the meantime.
const TRIES: usize = 20;

pub(super) fn connect(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = set_up(path, flags, Stay::Brief).and_then(|open| migrate::user_version(&open).map(|_| open));
    match read {
        Err(StoreError::Blocked { .. }) => copy_files(path),
        other => other,
    }
}

/// A private, writable copy of what `connection` sees now.
pub(super) fn copy_of(connection: &Connection) -> Result<Connection> {
    let (dir, copy) = new_copy()?;
    connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]).map_err(failed("copy the store"))?;
    open_copy(&dir, &copy)
}

/// A private copy of the files themselves.
fn copy_files(path: &Path) -> Result<Connection> {
    let (dir, copy) = new_copy()?;
    let copying = |error: io::Error| StoreError::io(format!("read {}", path.display()), &error);
    let [log, log_copy] = [path, &copy].map(|file| file::beside(file, "-wal"));
    for _ in 0..TRIES {
        let before = [stamp(path), stamp(&log)].map(|stamp| stamp.map_err(copying));
        private::copy(path, &copy).map_err(copying)?;
        match private::copy(&log, &log_copy) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            copied => drop(copied.map_err(copying)?),
        }
        let after = [stamp(path), stamp(&log)].map(|stamp| stamp.map_err(copying));
        if let ([Ok(a), Ok(b)], [Ok(c), Ok(d)]) = (before, after)
            && (a, b) == (c, d)
        {
            return open_copy(&dir, &copy);
        }
    }
    Err(StoreError::Busy { waited_ms: 0, writer: None })
}

/// Size and time of a file; `None` if it does not exist.
fn stamp(path: &Path) -> io::Result<Option<(u64, SystemTime)>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some((meta.len(), meta.modified()?))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn new_copy() -> Result<(TempDir, std::path::PathBuf)> {
    let dir = TempDir::new("store").map_err(|error| StoreError::io("copy the store", &error))?;
    let copy = dir.path().join("copy.db");
    Ok((dir, copy))
}

/// Opens a copy and reads from it once, so that its files can be removed: a command exits without closing anything.
fn open_copy(_removed_afterwards: &TempDir, copy: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = set_up(copy, flags, Stay::Brief)?;
    // In this mode the index of the log is in memory, and no further file is opened later.
    connection.pragma_update(None, "locking_mode", "exclusive").map_err(failed("open a copy of the store"))?;
    connection.pragma_update(None, "journal_mode", "memory").map_err(failed("open a copy of the store"))?;
    migrate::user_version(&connection)?;
    Ok(connection)
}
