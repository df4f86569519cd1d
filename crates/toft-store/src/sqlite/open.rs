//! Opening: is this a place for a store, and is the connection set up as every toft sets it up?

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use toft_core::{
    retention::Old,
    store::{Access, Result, Store, StoreError, StoreTx},
    time::Timestamp,
};

use super::{
    failed, migrate,
    turn::TurnQueue,
    tx::SqliteTx,
    wal::{Stay, Wal},
};
use crate::{
    clock::{Clock, MachineClock},
    write,
};

/// How long a writer waits once it is its turn; only something outside the queue can make it wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Older ones can corrupt a WAL when many processes write.
const OLDEST_SQLITE: i32 = 3_051_003;

/// A store in one SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    connection: Mutex<Connection>,
    turns: TurnQueue,
    clock: Arc<dyn Clock>,
    wal: Wal,
    commits: AtomicU64,
}

impl SqliteStore {
    /// Opens a store that exists.
    pub fn open(path: &Path) -> Result<Self> {
        Self::connect(path, Arc::new(MachineClock::new()), Stay::Long)
    }

    /// Opens a store that exists, for a process that does one thing and ends.
    pub fn open_briefly(path: &Path) -> Result<Self> {
        Self::connect(path, Arc::new(MachineClock::new()), Stay::Brief)
    }

    /// Opens a store, or makes it.
    pub fn create(path: &Path) -> Result<Self> {
        create_file(path)?;
        Self::open(path)
    }

    /// Opens a store that follows another clock.
    pub fn open_with(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::connect(path, clock, Stay::Long)
    }

    fn connect(path: &Path, clock: Arc<dyn Clock>, stay: Stay) -> Result<Self> {
        let path = real_path(path)?;
        let connection = connect(&path, stay)?;
        let wal = Wal::of(&path, stay);
        let turns = TurnQueue::open(&path)?;
        let store = Self { path, connection: Mutex::new(connection), turns, clock, wal, commits: AtomicU64::new(0) };
        store.upgrade()?;
        Ok(store)
    }

    /// Makes a store that follows another clock.
    pub fn create_with(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        create_file(path)?;
        Self::open_with(path, clock)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A consistent, verified copy. The target must not exist.
    pub fn backup(&self, target: &Path) -> Result<()> {
        copy_to(&self.lock(), target)
    }

    /// Asks SQLite to check the whole file; says what it found wrong.
    pub fn check(&self) -> Result<Vec<String>> {
        check(&self.lock())
    }

    /// The version of SQLite inside.
    pub fn engine() -> &'static str {
        rusqlite::version()
    }

    fn upgrade(&self) -> Result<()> {
        let mut connection = self.lock();
        match migrate::version(&connection)? {
            found if found == migrate::SCHEMA_VERSION => Ok(()),
            found if found > migrate::SCHEMA_VERSION => {
                Err(StoreError::Newer { found, known: migrate::SCHEMA_VERSION })
            }
            _ => {
                let _turn = self.turns.wait();
                connection.pragma_update(None, "journal_mode", "wal").map_err(failed("turn the WAL on"))?;
                migrate::migrate(&mut connection, &self.path)
            }
        }
    }

    pub(super) fn begin_tx(&self, access: Access) -> Result<SqliteTx<'_>> {
        let connection = self.lock();
        let turn = (access == Access::Write).then(|| self.turns.wait());
        SqliteTx::begin(connection, turn, access, self.clock.as_ref(), &self.wal, &self.commits)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for SqliteStore {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        Ok(Box::new(self.begin_tx(access)?))
    }

    fn pulse(&self) -> Result<u64> {
        // SQLite's number leaves out this connection's own commits.
        let others: i64 =
            self.lock().query_row("PRAGMA data_version", [], |row| row.get(0)).map_err(failed("look for changes"))?;
        Ok((others as u64) << 32 | self.commits.load(Ordering::Relaxed))
    }

    fn forget(&self, what: Old, before: Timestamp, limit: usize) -> Result<usize> {
        let tx = self.begin_tx(Access::Write)?;
        let mut gone = 0;
        for (query, values) in write::forget(what, before, limit) {
            gone = tx.change(query, &values)?;
        }
        Box::new(tx).commit()?;
        Ok(gone)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if self.commits.load(Ordering::Relaxed) > 0 {
            self.wal.leave_short(&self.lock());
        }
    }
}

fn connect(path: &Path, stay: Stay) -> Result<Connection> {
    let doing = failed("open the file");
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(StoreError::Unsuitable {
            path: path.display().to_string(),
            reason: format!(
                "SQLite {} can corrupt a WAL under load; 3.51.3 is the oldest that is sound",
                rusqlite::version()
            ),
        });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&doing)?;
    connection.busy_timeout(PATIENCE).map_err(&doing)?;
    // The last close would move the whole WAL and delete it: 10 to 24 ms for a lone command.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&doing)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true).map_err(&doing)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(&doing)?;
    // Otherwise a cached statement is planned anew whenever a value is bound: a third of a claim's time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(&doing)?;
    connection.pragma_update(None, "synchronous", "full").map_err(&doing)?;
    connection.pragma_update(None, "wal_autocheckpoint", stay.autocheckpoint()).map_err(&doing)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

/// The file behind symbolic links; refused if it has a second name or its file system cannot hold a store.
fn real_path(path: &Path) -> Result<PathBuf> {
    let unsuitable = |reason: String| StoreError::Unsuitable { path: path.display().to_string(), reason };
    let real = fs::canonicalize(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::Missing { path: path.display().to_string() },
        _ => unsuitable(error.to_string()),
    })?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let links = fs::metadata(&real).map_err(|error| unsuitable(error.to_string()))?.nlink();
        if links > 1 {
            return Err(unsuitable(format!("the file has {links} hard links, and each would have a WAL of its own")));
        }
    }
    if let Some(kind) = unsound_file_system(&real) {
        return Err(unsuitable(format!(
            "{kind} has no sound shared memory between processes, which the WAL needs; name a local path with --store"
        )));
    }
    Ok(real)
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

/// Makes an empty file only its owner can read.
fn create_file(path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| StoreError::Failed {
        doing: format!("make {}", path.display()),
        cause: error.to_string(),
    };
    if let Some(dir) = path.parent() {
        make_private_dir(dir).map_err(failed)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(failed)?;
    Ok(())
}

fn make_private_dir(dir: &Path) -> std::io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Copies the store as one transaction sees it, then checks the copy.
pub(super) fn copy_to(connection: &Connection, target: &Path) -> Result<()> {
    let doing = failed("copy the store");
    if target.exists() {
        return Err(StoreError::Unsuitable {
            path: target.display().to_string(),
            reason: "something is there already".into(),
        });
    }
    create_file(target)?;
    connection.execute("VACUUM INTO ?1", [target.to_string_lossy()]).map_err(&doing)?;
    fs::File::open(target)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::Failed { doing: "copy the store".into(), cause: error.to_string() })?;
    let copy = Connection::open_with_flags(target, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(&doing)?;
    let found = check(&copy)?;
    if found.is_empty() {
        Ok(())
    } else {
        Err(StoreError::Failed { doing: "verify the copy".into(), cause: found.join("; ") })
    }
}

fn check(connection: &Connection) -> Result<Vec<String>> {
    let doing = failed("check the file");
    let mut statement = connection.prepare("PRAGMA quick_check(20)").map_err(&doing)?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).map_err(&doing)?;
    let lines: Vec<String> = lines.collect::<rusqlite::Result<_>>().map_err(&doing)?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}
