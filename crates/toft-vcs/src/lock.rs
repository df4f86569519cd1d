//! Locks on a repository, for operations that only one process at a time may perform.

use std::{
    cell::RefCell,
    fs::{self, File},
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{command::RunError, private, workspace::WorkspaceError};

/// How long to wait for a lock.
const PATIENCE: Duration = Duration::from_secs(600);
/// Number of attempts at an operation that may succeed when repeated.
const TRIES: u32 = 6;

thread_local! {
    /// Files of the locks that this thread holds, newest last. Child processes inherit the newest one, so a child that
    /// outlives this process keeps the lock.
    static HELD: RefCell<Vec<Option<File>>> = const { RefCell::new(Vec::new()) };
}

/// The file of the newest lock, for a child process to keep open.
pub(crate) fn held() -> Option<File> {
    HELD.with_borrow(|held| held.last().and_then(|file| file.as_ref()?.try_clone().ok()))
}

/// A lock, released when dropped. If the process dies, the lock is released once its child processes have ended.
pub struct RepoLock {
    _file: File,
}

impl Drop for RepoLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(Vec::pop);
    }
}

impl RepoLock {
    /// Waits for the lock `name` in a repository's state directory.
    pub fn wait(state: &Path, name: &str) -> Result<Self, WorkspaceError> {
        let until = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(1);
        loop {
            match Self::attempt(state, name)? {
                Some(turn) => return Ok(turn),
                None if Instant::now() >= until => {
                    return Err(WorkspaceError::Busy { what: name.to_owned() });
                }
                None => thread::sleep(pause),
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Takes the lock if it is free.
    pub fn attempt(state: &Path, name: &str) -> Result<Option<Self>, WorkspaceError> {
        let dir = state.join("locks");
        let path = dir.join(name);
        let failed = |cause| WorkspaceError::Io { doing: "lock", path: path.clone(), cause };
        private::create_dir_all(&dir).map_err(failed)?;
        private::give_to_owner_of(state, &dir);
        let file = match private::options().truncate(false).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && unlocked(&path) => {
                // The file belongs to another user, such as root; the owner of the directory replaces it.
                fs::remove_file(&path).map_err(|_| failed(error))?;
                private::options().truncate(false).open(&path).map_err(failed)?
            }
            Err(cause) => return Err(failed(cause)),
        };
        private::give_to_owner_of(&dir, &path);
        match file.try_lock() {
            // The file may have been replaced before it was locked; a lock on the old file protects nothing.
            Ok(()) if !is_at(&file, &path) => Ok(None),
            Ok(()) => {
                HELD.with_borrow_mut(|held| held.push(file.try_clone().ok()));
                Ok(Some(Self { _file: file }))
            }
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |meta: fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().map(inode).ok() == fs::metadata(path).map(inode).ok()
}

/// Whether no process on this machine holds a lock on a file that this user cannot open. If that is unknown, the file
/// counts as locked.
#[cfg(target_os = "linux")]
fn unlocked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(meta), Ok(locks)) = (fs::metadata(path), fs::read_to_string("/proc/locks")) else { return false };
    let inode = format!(":{}", meta.ino());
    !locks.lines().any(|line| line.split_ascii_whitespace().any(|word| word.ends_with(&inode)))
}

#[cfg(not(target_os = "linux"))]
fn unlocked(_path: &Path) -> bool {
    false
}

/// Retries an operation that failed because another program, which does not use these locks, was using the same files.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> Result<T, RunError>) -> Result<T, RunError> {
    let mut pause = Duration::from_millis(20);
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.passes() => thread::sleep(pause),
            done => return done,
        }
        pause *= 2;
    }
    attempt()
}

/// Converts an error of a file operation.
pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WorkspaceError {
    let path = path.to_owned();
    move |cause| WorkspaceError::Io { doing, path, cause }
}
