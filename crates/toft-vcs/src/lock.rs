//! One at a time: what several processes may not do to a repository at once.

use std::{
    cell::RefCell,
    fs::{self, File},
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::{command::RunError, private, workspace::WorkspaceError};

/// How long somebody waits for a turn.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often something that passes is tried.
const TRIES: u32 = 6;

thread_local! {
    /// Files of the turns that this thread has, newest last. Programs it starts keep the newest open, so that one that
    /// outlives us keeps the turn too.
    static HELD: RefCell<Vec<Option<File>>> = const { RefCell::new(Vec::new()) };
}

/// The newest turn's file, for a program to keep open.
pub(crate) fn held() -> Option<File> {
    HELD.with_borrow(|held| held.last().and_then(|file| file.as_ref()?.try_clone().ok()))
}

/// A turn; dropped, it is the next one's. A process that dies lets go of it, once what it started has ended.
pub struct RepoLock {
    _file: File,
}

impl Drop for RepoLock {
    fn drop(&mut self) {
        HELD.with_borrow_mut(Vec::pop);
    }
}

impl RepoLock {
    /// Waits for a turn at `name` in a repository's own directory.
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

    /// Takes a turn if nobody has it.
    pub fn attempt(state: &Path, name: &str) -> Result<Option<Self>, WorkspaceError> {
        let dir = state.join("locks");
        let path = dir.join(name);
        let failed = |cause| WorkspaceError::Io { doing: "lock", path: path.clone(), cause };
        private::create_dir_all(&dir).map_err(failed)?;
        private::give_to_owner_of(state, &dir);
        let file = match private::options().truncate(false).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && unlocked(&path) => {
                // Another user left it, root for example; the directory's owner makes a new one.
                fs::remove_file(&path).map_err(|_| failed(error))?;
                private::options().truncate(false).open(&path).map_err(failed)?
            }
            Err(cause) => return Err(failed(cause)),
        };
        private::give_to_owner_of(&dir, &path);
        match file.try_lock() {
            // The file may have been replaced before it was locked; then the lock is nobody's.
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

/// Whether no process on this machine has a file locked, though this user cannot open it. Where that cannot be told, it is
/// locked.
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

/// Tries again what failed because somebody else, who does not wait for turns, was at the same files.
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

/// What went wrong with a file.
pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WorkspaceError {
    let path = path.to_owned();
    move |cause| WorkspaceError::Io { doing, path, cause }
}
