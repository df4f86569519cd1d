//! Opens a store: checks the file and its permissions, and sets up the connection.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, ffi::SQLITE_CANTOPEN_SYMLINK};
use toft_core::{
    retention::RetentionKind,
    store::{Access, Fault, Result, Store, StoreError, StoreTx},
    time::Timestamp,
};

use super::{
    failed, file, migrate, read_only,
    turn::TurnQueue,
    tx::{self, SqliteTx},
    wal::{Stay, Wal},
    writer,
};
use crate::{
    clock::{MachineClock, TimeSource},
    private, write,
};

/// How long a writer with a ticket waits for SQLite's lock; only a process outside the queue can make it wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A reader that looked at the name of the file this recently does not look again: a command has twenty transactions.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Older versions can corrupt a WAL when many processes write.
const OLDEST_SQLITE: i32 = 3_051_003;

/// A store in one SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    /// Identifies the file; a restore replaces it by another one.
    identity: Option<(u64, u64)>,
    /// When the file was last seen to be that one.
    seen: Mutex<Instant>,
    connection: Mutex<Connection>,
    /// The queue of writers; or why the store cannot be written, which only writers report.
    turns: std::result::Result<TurnQueue, (Fault, String)>,
    clock: Arc<dyn TimeSource>,
    wal: Wal,
    commits: AtomicU64,
    /// How many [`ReadSpan`]s there are now.
    spans: AtomicUsize,
}

/// While one lives, reads of a store share one snapshot, until something is written.
pub struct ReadSpan<'s> {
    store: &'s SqliteStore,
}

impl Drop for ReadSpan<'_> {
    fn drop(&mut self) {
        if self.store.spans.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.store.end_snapshot();
        }
    }
}

impl SqliteStore {
    /// Opens an existing store.
    pub fn open(path: &Path) -> Result<Self> {
        Self::connect(path, Arc::new(MachineClock::new()), Stay::Long)
    }

    /// Opens an existing store, for a short-lived process.
    pub fn open_briefly(path: &Path) -> Result<Self> {
        Self::connect(path, Arc::new(MachineClock::new()), Stay::Brief)
    }

    /// Opens a store, or creates it if there is no file.
    pub fn create(path: &Path) -> Result<Self> {
        file::create(path)?;
        Self::open(path)
    }

    /// Upgrades an existing store; returns the schema version before and after.
    pub fn migrate(path: &Path) -> Result<(i64, i64)> {
        let real = file::real_path(path)?;
        file::require_ours(&real)?;
        let found = migrate::version(&connect(&real, Stay::Brief)?)?;
        Self::open(&real)?;
        Ok((found, migrate::SCHEMA_VERSION))
    }

    /// Opens or creates a store whose content can be derived again. A damaged one is replaced, and if none can be
    /// written, a temporary file is used. A link in its place is removed, because agents can write to its directory.
    pub fn create_derived(path: &Path) -> Result<Self> {
        if path.is_symlink() {
            file::remove(path)?;
        }
        let opened = match Self::create(path) {
            Err(StoreError::Damaged { .. }) => {
                file::remove(path)?;
                Self::create(path)
            }
            other => other,
        };
        match opened {
            Ok(store) if store.turns.is_ok() => Ok(store),
            Ok(_) | Err(StoreError::Blocked { fault: Fault::AccessDenied | Fault::ReadOnly, .. }) => {
                let dir = private::TempDir::new("index").map_err(|error| StoreError::io("create an index", &error))?;
                let mut store = Self::create(&dir.path().join("index.db"))?;
                // Linux and macOS keep the open files until the process ends.
                store.begin_tx(Access::Write)?;
                store.identity = None;
                Ok(store)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a store with another clock.
    pub fn open_with(path: &Path, clock: Arc<dyn TimeSource>) -> Result<Self> {
        Self::connect(path, clock, Stay::Long)
    }

    fn connect(path: &Path, clock: Arc<dyn TimeSource>, stay: Stay) -> Result<Self> {
        let path = file::real_path(path)?;
        file::require_ours(&path)?;
        let (connection, turns) = match TurnQueue::open(&path) {
            Ok(turns) => (connect(&path, stay)?, Ok(turns)),
            Err(StoreError::Blocked { fault, cause, .. }) => (read_only::connect(&path)?, Err((fault, cause))),
            Err(error) => return Err(error),
        };
        let (connection, turns) = match connection.is_readonly("main").map_err(failed("open the file"))? {
            true if turns.is_ok() => {
                let why = (Fault::AccessDenied, "the file may only be read".to_owned());
                (read_only::connect(&path)?, Err(why))
            }
            _ => (connection, turns),
        };
        let (wal, identity) = (Wal::of(&path, stay), file::identity(&path));
        let store = Self {
            path,
            identity,
            seen: Mutex::new(Instant::now()),
            connection: Mutex::new(connection),
            turns,
            clock,
            wal,
            commits: AtomicU64::new(0),
            spans: AtomicUsize::new(0),
        };
        store.upgrade()?;
        Ok(store)
    }

    /// Creates a store with another clock.
    pub fn create_with(path: &Path, clock: Arc<dyn TimeSource>) -> Result<Self> {
        file::create(path)?;
        Self::open_with(path, clock)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the reads that follow share one snapshot. Each would otherwise lock and look at the file by itself.
    pub fn read_span(&self) -> ReadSpan<'_> {
        self.spans.fetch_add(1, Ordering::Relaxed);
        ReadSpan { store: self }
    }

    /// Lets the next read see what others have written, also within a [`ReadSpan`].
    pub fn end_snapshot(&self) {
        let connection = self.lock();
        if !connection.is_autocommit() {
            // Ending a read can only fail if SQLite already has.
            let _ = tx::run(&connection, "ROLLBACK");
        }
    }

    /// A consistent, verified copy. The target must not exist.
    pub fn backup(&self, target: &Path) -> Result<()> {
        file::copy_to(&self.lock(), target)
    }

    /// Checks the whole file with SQLite; returns the errors.
    pub fn check(&self) -> Result<Vec<String>> {
        file::check(&self.lock())
    }

    /// The version of SQLite.
    pub fn engine() -> &'static str {
        rusqlite::version()
    }

    pub(super) fn ask_pragma(&self, name: &str) -> Result<i64> {
        self.lock().query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).map_err(failed("look at the file"))
    }

    /// Merges the log into the file, unless other processes are reading it.
    pub(super) fn merge_log(&self) -> Result<()> {
        let merge = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.lock().query_row(merge, [], |_| Ok(())).map_err(failed("merge the log"))
    }

    fn upgrade(&self) -> Result<()> {
        let mut connection = self.lock();
        match migrate::version(&connection)? {
            found if found == migrate::SCHEMA_VERSION => Ok(()),
            found if found > migrate::SCHEMA_VERSION => {
                Err(StoreError::Newer { found, known: migrate::SCHEMA_VERSION })
            }
            found => {
                let Ok(turns) = &self.turns else {
                    return Err(StoreError::Older { found, known: migrate::SCHEMA_VERSION });
                };
                let _turn = turns.wait();
                migrate::migrate(&mut connection, &self.path)
            }
        }
    }

    fn require_same_file(&self, access: Access) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if access == Access::Read && seen.elapsed() < LOOK_AGAIN {
            return Ok(());
        }
        if file::identity(&self.path) != self.identity {
            return Err(file::damaged(&self.path, "the file was removed or replaced while this process had it open"));
        }
        *seen = Instant::now();
        Ok(())
    }

    pub(super) fn begin_tx(&self, access: Access) -> Result<SqliteTx<'_>> {
        self.require_same_file(access)?;
        let connection = self.lock();
        let turn = match (access, &self.turns) {
            (Access::Read, _) => None,
            (Access::Write, Ok(turns)) => turns.wait(),
            (Access::Write, Err((fault, cause))) => {
                let doing = format!("write {}", self.path.display());
                return Err(StoreError::Blocked { fault: *fault, doing, cause: cause.clone() });
            }
        };
        SqliteTx::begin(connection, turn, access, self).map_err(|error| writer::named(error, &self.path))
    }

    /// A transaction for rows that can be derived again. If the store is read-only, they go to a private copy, which
    /// this process reads from then on.
    pub(super) fn begin_derived(&self, access: Access) -> Result<SqliteTx<'_>> {
        if access == Access::Read || self.turns.is_ok() {
            return self.begin_tx(access);
        }
        // The copy is not made within a transaction.
        self.end_snapshot();
        let mut connection = self.lock();
        if connection.is_readonly("main").map_err(failed("look at the store"))? {
            *connection = read_only::copy_of(&connection)?;
        }
        SqliteTx::begin(connection, None, access, self)
    }

    /// The parts that a transaction uses.
    pub(super) fn parts(&self) -> (&dyn TimeSource, &Wal, &AtomicU64) {
        (self.clock.as_ref(), &self.wal, &self.commits)
    }

    /// Returns whether a read leaves its snapshot to the next one.
    pub(super) fn shares_snapshot(&self) -> bool {
        self.spans.load(Ordering::Relaxed) > 0
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for SqliteStore {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        Ok(Box::new(self.begin_tx(access)?))
    }

    fn change_counter(&self) -> Result<u64> {
        self.end_snapshot();
        // SQLite's number leaves out this connection's own commits.
        let others: i64 =
            self.lock().query_row("PRAGMA data_version", [], |row| row.get(0)).map_err(failed("look for changes"))?;
        Ok((others as u64) << 32 | self.commits.load(Ordering::Relaxed))
    }

    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize> {
        let tx = self.begin_tx(Access::Write)?;
        let mut gone = 0;
        for (query, values) in write::forget(what, before, self.clock.now().wall, limit) {
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

/// A connection for a writable store. `path` is the real path: a link that was put there since is refused.
fn connect(path: &Path, stay: Stay) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    set_up(path, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW, stay)
}

/// The same file by a path whose directories are no links. The file itself may have become one, which SQLite refuses.
fn without_linked_directories(path: &Path) -> Result<PathBuf> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let dir = dir.canonicalize().map_err(|error| StoreError::io(format!("open {}", path.display()), &error))?;
    Ok(dir.join(path.file_name().unwrap_or_default()))
}

/// Opens a file and sets up the connection.
pub(super) fn set_up(path: &Path, flags: OpenFlags, stay: Stay) -> Result<Connection> {
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
    let connection = match Connection::open_with_flags(path, flags) {
        // SQLite looks at every directory, so that most paths need no look of our own.
        Err(rusqlite::Error::SqliteFailure(error, _)) if error.extended_code == SQLITE_CANTOPEN_SYMLINK => {
            Connection::open_with_flags(without_linked_directories(path)?, flags)
        }
        opened => opened,
    };
    let connection = connection.map_err(&doing)?;
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
