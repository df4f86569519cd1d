//! The file of a store: checks, creates and copies it.
//!
//! Only [`create`] creates a store. It builds the store under another name and renames it, so a crash leaves no store
//! at all, and an empty file, or one without a header, under the store's name is always damage.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};
use toft_core::store::{Result, StoreError};

use super::{failed, migrate, turn::TurnQueue};
use crate::private;

/// A file that belongs to `store` and is named after it.
pub(super) fn beside(store: &Path, end: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(end);
    name.into()
}

pub(super) fn damaged(path: &Path, reason: &str) -> StoreError {
    StoreError::Damaged { place: path.display().to_string(), reason: reason.to_owned() }
}

fn unsuitable(path: &Path, reason: impl Into<String>) -> StoreError {
    StoreError::Unsuitable { path: path.display().to_string(), reason: reason.into() }
}

/// The file behind a symbolic link; links among its directories stay. Refused if it is empty, has a second hard link, or its
/// file system cannot hold a store.
pub(super) fn real_path(path: &Path) -> Result<PathBuf> {
    let opening = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => StoreError::Missing { path: path.display().to_string() },
        _ => StoreError::io(format!("open {}", path.display()), &error),
    };
    let mut real = std::path::absolute(path).map_err(opening)?;
    let mut meta = fs::symlink_metadata(&real).map_err(opening)?;
    if meta.is_symlink() {
        real = fs::canonicalize(path).map_err(opening)?;
        meta = fs::metadata(&real).map_err(opening)?;
    }
    if !meta.is_file() {
        return Err(unsuitable(path, "it is not a file"));
    }
    if meta.len() == 0 {
        return Err(damaged(&real, "the file is empty"));
    }
    let links = std::os::unix::fs::MetadataExt::nlink(&meta);
    if links > 1 {
        let reason = format!("the file has {links} hard links, and each would have a WAL of its own");
        return Err(unsuitable(path, reason));
    }
    if let Some(kind) = unsound_file_system(&real) {
        let reason = format!(
            "{kind} has no sound shared memory between processes, which the WAL needs; name a local path with --store"
        );
        return Err(unsuitable(path, reason));
    }
    Ok(real)
}

/// Device and inode number of a file; `None` if there is no file, or the system has no such numbers.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The name of the file system, if two processes on it may see two different WALs.
#[cfg(target_os = "linux")]
fn unsound_file_system(path: &Path) -> Option<&'static str> {
    const UNSOUND: [(i64, &str); 7] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "FUSE (or virtiofs)"),
        (0x794c_7630, "overlayfs"),
        (0x00c3_6400, "Ceph"),
    ];
    let kind = nix::sys::statfs::statfs(path).ok()?.filesystem_type().0;
    UNSOUND.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn unsound_file_system(_path: &Path) -> Option<&'static str> {
    None
}

/// Refuses a file that is not a toft store, before anything is created beside it.
///
/// SQLite reads the header, not this process: closing a descriptor of our own would release the locks of every other
/// connection of this process. A store that was in use already has its queue file beside it and is not checked.
pub(super) fn require_ours(path: &Path) -> Result<()> {
    if TurnQueue::file(path).exists() || fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0) {
        return Ok(());
    }
    let connection = open_immutable(path)?;
    migrate::version(&connection).map(drop)
}

/// Opens the file alone, without its log: takes no lock and creates no file.
fn open_immutable(path: &Path) -> Result<Connection> {
    let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags).map_err(failed("open the file"))
}

/// Creates a store, unless there is one. If several processes do this at once, the first one wins.
pub(super) fn create(path: &Path) -> Result<()> {
    let making = |error: io::Error| StoreError::io(format!("create {}", path.display()), &error);
    if path.try_exists().map_err(making)? {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        private::create_dir_all(dir).map_err(making)?;
    }
    let queue = private::options().read(true).write(true).create(true).truncate(false).open(TurnQueue::file(path));
    let queue = queue.map_err(making)?;
    queue.lock().map_err(making)?;
    if path.try_exists().map_err(making)? {
        return Ok(());
    }
    let draft = beside(path, ".new");
    // A crash may have left one behind; the lock makes this process the only one that builds.
    remove(&draft)?;
    private::create(&draft).map_err(making)?;
    build(&draft)?;
    fs::File::open(&draft).and_then(|file| file.sync_all()).map_err(making)?;
    fs::rename(&draft, path).map_err(making)?;
    sync_dir_of(path).map_err(making)
}

/// Removes a database and the files that SQLite keeps beside it.
pub(super) fn remove(path: &Path) -> Result<()> {
    for end in ["", "-journal", "-wal", "-shm"] {
        match fs::remove_file(beside(path, end)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StoreError::io(format!("remove {}", path.display()), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Creates an empty store with the newest schema in an empty file.
fn build(path: &Path) -> Result<()> {
    let doing = failed("create the store");
    let mut connection = Connection::open(path).map_err(&doing)?;
    // Only a file without tables takes this: pages that `gc` frees can then be given back a few at a time.
    connection.pragma_update(None, "auto_vacuum", "incremental").map_err(&doing)?;
    migrate::migrate_new(&mut connection)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(&doing)?;
    connection.close().map_err(|(_, error)| doing(error))
}

/// Makes a rename in the directory of `path` durable.
pub(super) fn sync_dir_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(dir)?.sync_all()
}

/// Copies the store from one transaction, then checks the copy.
pub(super) fn copy_to(connection: &Connection, target: &Path) -> Result<()> {
    let doing = failed("copy the store");
    let copying = |error: io::Error| StoreError::io("copy the store", &error);
    if target.exists() {
        return Err(unsuitable(target, "something is there already"));
    }
    private::create(target).map_err(copying)?;
    connection.execute("VACUUM INTO ?1", [target.to_string_lossy()]).map_err(&doing)?;
    fs::File::open(target).and_then(|file| file.sync_all()).map_err(copying)?;
    let copy = Connection::open_with_flags(target, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(&doing)?;
    let found = check(&copy)?;
    if found.is_empty() { Ok(()) } else { Err(damaged(target, &found.join("; "))) }
}

/// The errors that SQLite finds in the whole file.
pub(super) fn check(connection: &Connection) -> Result<Vec<String>> {
    let doing = failed("check the file");
    let mut statement = connection.prepare("PRAGMA quick_check(20)").map_err(&doing)?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).map_err(&doing)?;
    let lines: Vec<String> = lines.collect::<rusqlite::Result<_>>().map_err(&doing)?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}
