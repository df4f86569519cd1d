//! Finds the process that holds the write lock of a store, for the error of a command that waited for it too long.
//!
//! SQLite's write lock is a POSIX lock on one byte of the shared memory file. Opening that file to query the lock is
//! not possible: closing it again would release this process's own locks. The kernel lists all locks.

use std::path::Path;

use toft_core::store::{StoreError, Writer};

/// The error; if the store is busy, with the process that holds the lock, if known.
pub(super) fn named(error: StoreError, store: &Path) -> StoreError {
    match error {
        StoreError::Busy { waited_ms, writer: None } => StoreError::Busy { waited_ms, writer: of(store) },
        other => other,
    }
}

#[cfg(target_os = "linux")]
fn of(store: &Path) -> Option<Writer> {
    use std::{fs, os::unix::fs::MetadataExt as _};
    let shared = fs::metadata(super::file::beside(store, "-shm")).ok()?;
    let pid = holder(&fs::read_to_string("/proc/locks").ok()?, shared.ino())?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let stopped = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']));
    Some(Writer { pid, program, stopped })
}

#[cfg(not(target_os = "linux"))]
fn of(_store: &Path) -> Option<Writer> {
    None
}

/// The process that has the write lock in this file, from `/proc/locks`.
#[cfg(target_os = "linux")]
fn holder(locks: &str, inode: u64) -> Option<u32> {
    /// The byte that SQLite locks to write to the log.
    const WRITE_LOCK: u64 = 120;
    let inode = inode.to_string();
    locks.lines().find_map(|line| {
        // Who only waits has an arrow in the second place.
        let [_, "POSIX", _, "WRITE", pid, file, first, last] = line.split_ascii_whitespace().collect::<Vec<_>>()[..]
        else {
            return None;
        };
        let covers = first.parse::<u64>().ok()? <= WRITE_LOCK && last.parse::<u64>().is_ok_and(|n| n >= WRITE_LOCK);
        // A process of another pid namespace has the number 0 here, or none.
        (covers && file.rsplit(':').next() == Some(&inode)).then(|| pid.parse().ok().filter(|pid| *pid > 0))?
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::holder;

    #[test]
    fn the_writer_is_told_from_readers_waiters_and_other_files() {
        let locks = "1: POSIX  ADVISORY  READ  11 08:01:77 128 128\n\
                     2: OFDLCK ADVISORY  WRITE -1 08:01:77 120 120\n\
                     3: POSIX  ADVISORY  WRITE 12 08:01:78 120 120\n\
                     4: -> POSIX  ADVISORY  WRITE 13 08:01:77 120 120\n\
                     5: POSIX  ADVISORY  WRITE 0 08:01:77 120 120\n\
                     6: POSIX  ADVISORY  WRITE 14 08:01:77 120 120\n";
        assert_eq!(holder(locks, 77), Some(14));
        assert_eq!(holder(locks, 79), None);
        assert_eq!(holder("", 77), None);
    }
}
