//! The queue of writers: writers of all processes wait in the order of arrival, instead of racing for SQLite's lock.
//!
//! SQLite lets the process write that asks at the right moment; with 150 processes one commits thousands of times while
//! another commits once. So a writer first takes a number from a small file and locks the byte with that number; it
//! waits for the byte of the number before its own. The kernel releases the byte of a process that dies, so nothing has
//! to be cleaned up. The queue only orders: SQLite's own lock still protects the data. So a writer that waited too long
//! behind a stopped process proceeds, and records that the numbers before it are skipped, so that later writers do not
//! wait for them.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use toft_core::store::{Result, StoreError};

use crate::private;

/// The queue of one store. Each open store has its own file description, so threads queue like processes.
#[derive(Debug)]
pub(super) struct TurnQueue {
    file: File,
}

impl TurnQueue {
    /// The path of the queue file of a store.
    pub(super) fn file(store: &Path) -> PathBuf {
        store.with_extension("turns")
    }

    pub(super) fn open(store: &Path) -> Result<Self> {
        let path = Self::file(store);
        let opened = private::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| StoreError::io(format!("open {}", path.display()), &error))?;
        Ok(Self { file })
    }
}

#[cfg(target_os = "linux")]
pub(super) use ticket::WriteTicket;

#[cfg(target_os = "linux")]
mod ticket {
    use std::{
        fs::File,
        os::unix::fs::FileExt,
        sync::mpsc::{RecvTimeoutError, channel},
        time::{Duration, Instant},
    };

    use nix::{
        errno::Errno,
        fcntl::{FcntlArg, fcntl},
        libc,
    };

    use super::TurnQueue;

    /// Offset of the last number that was taken,
    const DRAWN: u64 = 0;
    /// of the number that is served now,
    const SERVED: u64 = 8;
    /// and of the number below which writers are not waited for.
    const FLOOR: u64 = 16;
    /// Byte whose lock protects taking a number.
    const DRAWING: i64 = 0;
    /// Byte of number 0; far above the counters.
    const NUMBERS: i64 = 1 << 20;
    /// If no writer was served for this long, the one in front is stopped: proceed without the queue.
    const STALLED: Duration = Duration::from_secs(2);

    /// Permission to write, released when dropped.
    #[derive(Debug)]
    pub(crate) struct WriteTicket<'a> {
        file: &'a File,
        number: i64,
    }

    impl TurnQueue {
        /// Waits for permission to write. Never fails: without the queue, SQLite's own lock decides.
        pub(crate) fn wait(&self) -> Option<WriteTicket<'_>> {
            let turn = WriteTicket { file: &self.file, number: draw(&self.file).ok()? };
            if !turn.wait_for_others() {
                write_counter(&self.file, FLOOR, turn.number);
            }
            write_counter(&self.file, SERVED, turn.number);
            Some(turn)
        }
    }

    impl WriteTicket<'_> {
        /// False if no writer was served for too long.
        fn wait_for_others(&self) -> bool {
            let floor = read_counter(self.file, FLOOR).min(self.number);
            let (first, count) = (NUMBERS + floor, self.number - floor);
            if count == 0 || self.free(first, count) {
                return true;
            }
            // One before may have died while others still wait before it, so ask for all of them afterwards.
            self.wait_until_free(NUMBERS + self.number - 1, 1)
                && (self.free(first, count) || self.wait_until_free(first, count))
        }

        fn free(&self, start: i64, count: i64) -> bool {
            let free = lock(self.file, start, count, false).is_ok();
            if free {
                let _ = unlock(self.file, start, count);
            }
            free
        }

        /// Blocks in a thread of its own, so that the caller can stop waiting.
        fn wait_until_free(&self, start: i64, count: i64) -> bool {
            let Ok(file) = self.file.try_clone() else { return false };
            let (done, arrived) = channel();
            std::thread::spawn(move || {
                let _ = lock(&file, start, count, true);
                let _ = unlock(&file, start, count);
                let _ = done.send(());
            });
            let mut served = read_counter(self.file, SERVED);
            while arrived.recv_timeout(STALLED) == Err(RecvTimeoutError::Timeout) {
                let now = read_counter(self.file, SERVED);
                if now == served {
                    return false;
                }
                served = now;
            }
            true
        }
    }

    impl Drop for WriteTicket<'_> {
        fn drop(&mut self) {
            let _ = unlock(self.file, NUMBERS + self.number, 1);
        }
    }

    /// Takes the next number and its byte. This takes microseconds, so a process that blocks it is stopped.
    fn draw(file: &File) -> nix::Result<i64> {
        let until = Instant::now() + STALLED;
        while let Err(error) = lock(file, DRAWING, 1, false) {
            if Instant::now() >= until {
                return Err(error);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        let number = read_counter(file, DRAWN) + 1;
        write_counter(file, DRAWN, number);
        let drawn = lock(file, NUMBERS + number, 1, false);
        unlock(file, DRAWING, 1)?;
        drawn.map(|()| number)
    }

    /// Writes a counter. Only the order depends on it: a failed write affects nothing else.
    fn write_counter(file: &File, at: u64, number: i64) {
        let _ = file.write_at(&number.to_le_bytes(), at);
    }

    /// Reads a counter; an invalid number counts as 0.
    fn read_counter(file: &File, at: u64) -> i64 {
        let mut bytes = [0; 8];
        match file.read_at(&mut bytes, at) {
            Ok(8) => Some(i64::from_le_bytes(bytes)).filter(|n| (0..1 << 60).contains(n)).unwrap_or(0),
            _ => 0,
        }
    }

    fn lock(file: &File, start: i64, length: i64, wait: bool) -> nix::Result<()> {
        let range = range(libc::F_WRLCK, start, length);
        loop {
            let result = if wait {
                fcntl(file, FcntlArg::F_OFD_SETLKW(&range))
            } else {
                fcntl(file, FcntlArg::F_OFD_SETLK(&range))
            };
            match result {
                Err(Errno::EINTR) => {}
                other => return other.map(drop),
            }
        }
    }

    fn unlock(file: &File, start: i64, length: i64) -> nix::Result<()> {
        fcntl(file, FcntlArg::F_OFD_SETLK(&range(libc::F_UNLCK, start, length))).map(drop)
    }

    fn range(kind: i32, start: i64, length: i64) -> libc::flock {
        libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: length, l_pid: 0 }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use whole_file::WriteTicket;

/// On other systems the whole file is locked: one writer at a time, in the order that the system chooses.
#[cfg(not(target_os = "linux"))]
mod whole_file {
    use std::{
        fs::File,
        time::{Duration, Instant},
    };

    use super::TurnQueue;

    /// After this long behind a stopped process, a writer proceeds and relies on SQLite's own lock.
    const STALLED: Duration = Duration::from_secs(10);

    #[derive(Debug)]
    pub(crate) struct WriteTicket<'a> {
        file: &'a File,
    }

    impl TurnQueue {
        pub(crate) fn wait(&self) -> Option<WriteTicket<'_>> {
            let until = Instant::now() + STALLED;
            while self.file.try_lock().is_err() {
                if Instant::now() >= until {
                    return None;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            Some(WriteTicket { file: &self.file })
        }
    }

    impl Drop for WriteTicket<'_> {
        fn drop(&mut self) {
            let _ = self.file.unlock();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::{Duration, Instant};

    use super::TurnQueue;

    #[test]
    fn behind_a_stopped_writer_one_waits_once_and_the_next_ones_pass_it_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toft.db");
        let [stopped, first, second] = [(); 3].map(|()| TurnQueue::open(&path).unwrap());
        let _never_served = stopped.wait();
        let start = Instant::now();
        drop(first.wait());
        assert!(start.elapsed() >= Duration::from_secs(2), "it was waited for");
        let start = Instant::now();
        drop(second.wait());
        assert!(start.elapsed() < Duration::from_millis(500), "and then passed over");
    }

    #[test]
    fn one_is_served_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toft.db");
        let [a, b] = [(); 2].map(|()| TurnQueue::open(&path).unwrap());
        let turn = a.wait();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let start = Instant::now();
                drop(b.wait());
                start.elapsed()
            });
            std::thread::sleep(Duration::from_millis(200));
            drop(turn);
            let waited = waiting.join().unwrap();
            assert!(waited >= Duration::from_millis(100) && waited < Duration::from_secs(1), "{waited:?}");
        });
    }
}
