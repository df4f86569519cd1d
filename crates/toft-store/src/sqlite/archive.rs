//! A backup: one SQLite file with the rows of a store and the files that belong to it.
//!
//! The backup of a SQLite store is a copy of it with two more tables, so it can also be opened with `--store`. The rows of
//! a server are JSON texts in a third table.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use serde_json::Value;
use toft_core::store::{Result, StoreError};

use super::{failed, file, migrate};
use crate::private;

/// A file that belongs to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Its path relative to the store's directory.
    pub path: String,
    /// A hash of its content, chosen by the caller.
    pub hash: String,
    pub content: Vec<u8>,
}

/// An open backup.
pub struct Archive {
    path: PathBuf,
    connection: Connection,
}

const TABLES: &str = "
    CREATE TABLE backup_about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE backup_files (path TEXT PRIMARY KEY, hash TEXT NOT NULL, content BLOB NOT NULL);
    CREATE TABLE backup_rows (n INTEGER PRIMARY KEY, source TEXT NOT NULL, row TEXT NOT NULL);";

impl Archive {
    /// A new backup at `path`, which must not exist; `fill` may first write a copy of a store there.
    pub fn create(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        fill(path)?;
        if !path.exists() {
            private::create(path).map_err(|error| StoreError::io(format!("create {}", path.display()), &error))?;
        }
        let connection = Connection::open(path).map_err(failed("write the backup"))?;
        connection.execute_batch("PRAGMA journal_mode = delete; BEGIN").map_err(failed("write the backup"))?;
        connection.execute_batch(TABLES).map_err(failed("write the backup"))?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Opens and verifies a backup.
    pub fn open(path: &Path) -> Result<Self> {
        let meta = fs::metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => StoreError::Missing { path: path.display().to_string() },
            _ => StoreError::io(format!("read {}", path.display()), &error),
        })?;
        let not_one = || StoreError::Unsuitable {
            path: path.display().to_string(),
            reason: "it is not a backup that toft wrote".into(),
        };
        if !meta.is_file() || meta.len() == 0 {
            return Err(not_one());
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed("open the backup"))?;
        let ours = "SELECT count(*) FROM sqlite_schema WHERE name = 'backup_about'";
        let ours: i64 = connection.query_row(ours, [], |row| row.get(0)).map_err(failed("open the backup"))?;
        if ours == 0 {
            return Err(not_one());
        }
        match file::check(&connection)?.as_slice() {
            [] => Ok(Self { path: path.to_owned(), connection }),
            found => Err(file::damaged(path, &found.join("; "))),
        }
    }

    /// Stores a property of the backup.
    pub fn describe(&self, name: &str, value: &str) -> Result<()> {
        self.execute("INSERT INTO backup_about VALUES (?1, ?2)", params![name, value])
    }

    /// A property of the backup.
    pub fn about(&self, name: &str) -> Result<Option<String>> {
        let sql = "SELECT value FROM backup_about WHERE name = ?1";
        self.connection.query_row(sql, [name], |row| row.get(0)).optional().map_err(failed("read the backup"))
    }

    /// Adds a file.
    pub fn add_file(&self, kept: &ArchivedFile) -> Result<()> {
        let ArchivedFile { path, hash, content } = kept;
        self.execute("INSERT INTO backup_files VALUES (?1, ?2, ?3)", params![path, hash, content])
    }

    /// Calls `take` with each file.
    pub fn files<E: From<StoreError>>(
        &self,
        mut take: impl FnMut(ArchivedFile) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let doing = failed("read the backup");
        let sql = "SELECT path, hash, content FROM backup_files ORDER BY path";
        let mut statement = self.connection.prepare(sql).map_err(&doing)?;
        let mut rows = statement.query([]).map_err(&doing)?;
        while let Some(row) = rows.next().map_err(&doing)? {
            let kept = || Ok(ArchivedFile { path: row.get(0)?, hash: row.get(1)?, content: row.get(2)? });
            take(kept().map_err(&doing)?)?;
        }
        Ok(())
    }

    /// Adds a row of a server.
    pub fn add_row(&self, table: &str, row: &str) -> Result<()> {
        self.execute("INSERT INTO backup_rows (source, row) VALUES (?1, ?2)", params![table, row])
    }

    /// The next rows of a server after number `after`: number, table, row.
    pub fn rows(&self, after: i64, limit: usize) -> Result<Vec<(i64, String, String)>> {
        let doing = failed("read the backup");
        let sql = "SELECT n, source, row FROM backup_rows WHERE n > ?1 ORDER BY n LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql).map_err(&doing)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows = statement.query_map(params![after, limit as i64], read).map_err(&doing)?;
        rows.collect::<rusqlite::Result<_>>().map_err(doing)
    }

    /// Blobs that checkpoints in the backup reference and that are not in it.
    pub fn missing_blobs(&self) -> Result<Vec<String>> {
        let doing = failed("verify the backup");
        let text = |sql: &str| -> Result<Vec<String>> {
            let mut statement = self.connection.prepare(sql).map_err(&doing)?;
            let rows = statement.query_map([], |row| row.get(0)).map_err(&doing)?;
            rows.collect::<rusqlite::Result<_>>().map_err(&doing)
        };
        let there: BTreeSet<String> = text("SELECT path FROM backup_files")?.into_iter().collect();
        let mut missing = Vec::new();
        for body in text("SELECT body FROM checkpoints WHERE body LIKE '%\"blob\"%'")? {
            let blob = serde_json::from_str::<Value>(&body).ok();
            let blob = blob.as_ref().and_then(|body| body["detail"]["blob"].as_str());
            missing.extend(blob.filter(|blob| !there.contains(&format!("blobs/{blob}"))).map(str::to_owned));
        }
        Ok(missing)
    }

    /// Makes a new backup durable, and verifies it.
    pub fn finish(self) -> Result<()> {
        self.connection.execute_batch("COMMIT").map_err(failed("write the backup"))?;
        let found = file::check(&self.connection)?;
        self.connection.close().map_err(|(_, error)| failed("write the backup")(error))?;
        let syncing = |error| StoreError::io(format!("write {}", self.path.display()), &error);
        fs::File::open(&self.path).and_then(|file| file.sync_all()).map_err(syncing)?;
        file::sync_dir_of(&self.path).map_err(syncing)?;
        if found.is_empty() { Ok(()) } else { Err(file::damaged(&self.path, &found.join("; "))) }
    }

    /// The schema version of the SQLite store inside. A newer version than this toft's is refused.
    pub fn schema(&self) -> Result<i64> {
        let (found, known) = (migrate::version(&self.connection)?, migrate::SCHEMA_VERSION);
        if found > known { Err(StoreError::Newer { found, known }) } else { Ok(found) }
    }

    /// Writes the SQLite store inside to `target`, ready to be opened.
    pub fn extract_store(&self, target: &Path) -> Result<()> {
        let doing = failed("restore the store");
        file::remove(target)?;
        file::copy_to(&self.connection, target)?;
        let store = Connection::open(target).map_err(&doing)?;
        let drop = "DROP TABLE backup_about; DROP TABLE backup_files; DROP TABLE backup_rows;";
        store.execute_batch(drop).map_err(&doing)?;
        store.execute_batch("PRAGMA auto_vacuum = incremental; VACUUM; PRAGMA journal_mode = wal").map_err(&doing)?;
        store.close().map_err(|(_, error)| doing(error))?;
        let syncing = |error| StoreError::io(format!("write {}", target.display()), &error);
        fs::File::open(target).and_then(|file| file.sync_all()).map_err(syncing)
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<()> {
        let doing = failed("write the backup");
        self.connection.prepare_cached(sql).map_err(&doing)?.execute(values).map(drop).map_err(doing)
    }
}

/// Moves the file `draft` to the path of the store, and the previous file to another name, which is returned. No
/// process may have the store open.
pub fn replace(path: &Path, draft: &Path, aside: &str) -> Result<Option<PathBuf>> {
    let moving = |error: std::io::Error| StoreError::io(format!("replace {}", path.display()), &error);
    let kept = file::beside(path, &format!(".{aside}"));
    let there = path.try_exists().map_err(moving)?;
    if there {
        merge_log(path)?;
        // The log must not outlive its file: SQLite would replay it into the next one.
        for end in ["-wal", "-shm", "-journal"] {
            match fs::rename(file::beside(path, end), file::beside(&kept, end)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(moving(error)),
                _ => {}
            }
        }
        fs::hard_link(path, &kept).map_err(moving)?;
    }
    fs::rename(draft, path).map_err(moving)?;
    file::sync_dir_of(path).map_err(moving)?;
    Ok(there.then_some(kept))
}

/// Merges the log of an intact store; refused while another process has it open. A damaged store is not changed.
fn merge_log(path: &Path) -> Result<()> {
    let merged = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|store| {
        store.busy_timeout(std::time::Duration::ZERO)?;
        store.query_row("PRAGMA journal_mode = delete", [], |row| row.get::<_, String>(0))
    });
    match merged.map_err(failed("merge the log")) {
        Ok(_) | Err(StoreError::Damaged { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
