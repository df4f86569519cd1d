//! Turns: writers of all processes wait in the order they came, instead of racing for SQLite's lock.
//!
//! SQLite lets whoever asks at the right moment write; with 150 processes one commits thousands of times
//! while another commits once. So a writer first draws a number from a small file and locks the byte with
//! that number; it waits for the byte of the number before its own. A process that dies lets go of its byte,
//! so nothing is ever left to clean up. The queue only orders: SQLite's own lock still protects the data,
//! so a writer that waited too long behind a stopped process goes ahead and relies on that.

use std::{fs::File, path::Path};

use toft_core::store::{Result, StoreError};

/// The queue of one store. Each open store has its own file description, so threads queue like processes.
#[derive(Debug)]
pub(super) struct TurnQueue {
    file: File,
}

impl TurnQueue {
    pub(super) fn open(store: &Path) -> Result<Self> {
        let path = store.with_extension("turns");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| StoreError::Failed {
            doing: format!("open {}", path.display()),
            cause: error.to_string(),
        })?;
        Ok(Self { file })
    }
}

#[cfg(target_os = "linux")]
pub(super) use ticket::Turn;

#[cfg(target_os = "linux")]
mod ticket {
    use std::{
        fs::File,
        os::unix::fs::FileExt,
        sync::mpsc::{RecvTimeoutError, channel},
        time::Duration,
    };

    use nix::{
        errno::Errno,
        fcntl::{FcntlArg, fcntl},
        libc,
    };

    use super::TurnQueue;

    /// Where the next number stands, and after it the number now served.
    const COUNTERS: u64 = 0;
    /// Byte whose lock guards drawing a number.
    const DRAWING: i64 = 0;
    /// Byte of number 0; far above the counters.
    const NUMBERS: i64 = 1 << 20;
    /// If nobody was served for this long, the one in front is stopped: go ahead without the queue.
    const STALLED: Duration = Duration::from_secs(2);

    /// A turn; over when dropped.
    #[derive(Debug)]
    pub(crate) struct Turn<'a> {
        file: &'a File,
        number: i64,
    }

    impl TurnQueue {
        /// Waits for a turn. Never fails: without the queue, SQLite's own lock decides.
        pub(crate) fn wait(&self) -> Option<Turn<'_>> {
            let turn = Turn { file: &self.file, number: draw(&self.file).ok()? };
            turn.wait_for_others();
            let _ = self.file.write_at(&turn.number.to_le_bytes(), COUNTERS + 8);
            Some(turn)
        }
    }

    impl Turn<'_> {
        fn wait_for_others(&self) {
            let everyone_before = self.number;
            if self.free(NUMBERS, everyone_before) {
                return;
            }
            self.wait_until_free(NUMBERS + self.number - 1, 1);
            // The one before may have died while others still wait before it.
            if !self.free(NUMBERS, everyone_before) {
                self.wait_until_free(NUMBERS, everyone_before);
            }
        }

        fn free(&self, start: i64, count: i64) -> bool {
            let free = lock(self.file, start, count, false).is_ok();
            if free {
                let _ = unlock(self.file, start, count);
            }
            free
        }

        /// Blocks in a thread of its own, so that waiting can be given up when nothing moves.
        fn wait_until_free(&self, start: i64, count: i64) {
            let Ok(file) = self.file.try_clone() else { return };
            let (done, arrived) = channel();
            std::thread::spawn(move || {
                let _ = lock(&file, start, count, true);
                let _ = unlock(&file, start, count);
                let _ = done.send(());
            });
            let mut served = served(self.file);
            while arrived.recv_timeout(STALLED) == Err(RecvTimeoutError::Timeout) {
                let now = self::served(self.file);
                if now == served {
                    return;
                }
                served = now;
            }
        }
    }

    impl Drop for Turn<'_> {
        fn drop(&mut self) {
            let _ = unlock(self.file, NUMBERS + self.number, 1);
        }
    }

    /// Takes the next number and its byte.
    fn draw(file: &File) -> nix::Result<i64> {
        lock(file, DRAWING, 1, true)?;
        let number = read_counter(file, COUNTERS) + 1;
        let drawn = file
            .write_at(&number.to_le_bytes(), COUNTERS)
            .map_err(|_| Errno::EIO)
            .and_then(|_| lock(file, NUMBERS + number, 1, false));
        unlock(file, DRAWING, 1)?;
        drawn.map(|()| number)
    }

    fn served(file: &File) -> i64 {
        read_counter(file, COUNTERS + 8)
    }

    /// A counter; whatever is no sound number counts as 0.
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
pub(super) use whole_file::Turn;

/// Elsewhere the whole file is locked: one at a time, in the order the system chooses.
#[cfg(not(target_os = "linux"))]
mod whole_file {
    use std::fs::File;

    use super::TurnQueue;

    #[derive(Debug)]
    pub(crate) struct Turn<'a> {
        file: &'a File,
    }

    impl TurnQueue {
        pub(crate) fn wait(&self) -> Option<Turn<'_>> {
            self.file.lock().ok().map(|()| Turn { file: &self.file })
        }
    }

    impl Drop for Turn<'_> {
        fn drop(&mut self) {
            let _ = self.file.unlock();
        }
    }
}
