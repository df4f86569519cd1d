//! Databases of other programs: read from a copy, so that the originals do not change.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use rusqlite::{Connection, OpenFlags, types::ValueRef};
use toft_core::store::{Result, StoreError};

use super::file::beside;
use crate::private::{self, TempDir};

/// A larger database is not the issue store of a tool.
const LARGEST: u64 = 4 << 30;

/// Number of attempts to copy a database that another program writes to.
const ATTEMPTS: usize = 3;

/// The files of a database. Without its log, commits are missing; without its rollback journal, rows of a transaction
/// that was never committed look like committed ones.
const SUFFIXES: [&str; 3] = ["", "-wal", "-journal"];

/// The value of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl Cell {
    /// The value as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

/// One row by column name; null values are left out.
pub type Row = BTreeMap<String, Cell>;

/// The rows of these tables of a database, by table; tables that it does not have are left out.
pub fn read(path: &Path, tables: &[&str]) -> Result<BTreeMap<String, Vec<Row>>> {
    let copy = DatabaseCopy::of(path, private::copy)?;
    let read_failed = |error: rusqlite::Error| StoreError::Failed {
        doing: format!("read {}", path.display()),
        cause: error.to_string(),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&copy.file, flags).map_err(read_failed)?;
    let mut known = connection
        .prepare("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1")
        .map_err(read_failed)?;
    let mut found = BTreeMap::new();
    for table in tables {
        if known.query_row([table], |row| row.get::<_, i64>(0)).map_err(read_failed)? > 0 {
            found.insert((*table).to_owned(), rows(&connection, table).map_err(read_failed)?);
        }
    }
    Ok(found)
}

fn rows(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare(&format!("SELECT * FROM \"{}\"", table.replace('"', "\"\"")))?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let rows = statement.query_map([], |row| {
        let mut cells = Row::new();
        for (n, column) in columns.iter().enumerate() {
            let cell = match row.get_ref(n)? {
                ValueRef::Null => continue,
                ValueRef::Integer(number) => Cell::Integer(number),
                ValueRef::Real(number) => Cell::Real(number),
                ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
            };
            cells.insert(column.clone(), cell);
        }
        Ok(cells)
    })?;
    rows.collect()
}

/// Length, modification time and inode of a file; none if there is no such file.
type FileStamp = Option<(u64, SystemTime, u64)>;

fn stamp(path: &Path) -> io::Result<FileStamp> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some((meta.len(), meta.modified()?, meta.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A temporary copy of a database with its log and its rollback journal.
struct DatabaseCopy {
    _dir: TempDir,
    file: PathBuf,
}

impl DatabaseCopy {
    /// Copies the files until none of them changed meanwhile: files from different moments are no database.
    fn of(path: &Path, copy: impl Fn(&Path, &Path) -> io::Result<u64>) -> Result<Self> {
        let copy_failed = |cause: io::Error| StoreError::io(format!("copy {}", path.display()), &cause);
        // SQLite keeps the log beside the file itself, not beside a link to it.
        let original = fs::canonicalize(path).map_err(copy_failed)?;
        let stamps = || SUFFIXES.iter().map(|suffix| stamp(&beside(&original, suffix))).collect::<io::Result<Vec<_>>>();
        for _ in 0..ATTEMPTS {
            let before = stamps().map_err(copy_failed)?;
            if before.iter().flatten().map(|(length, ..)| length).sum::<u64>() > LARGEST {
                return Err(copy_failed(io::Error::other("it is too large")));
            }
            // A new directory each time: a journal of an earlier attempt would be rolled back.
            let dir = TempDir::new("import").map_err(copy_failed)?;
            let file = dir.path().join("copy.db");
            let there = SUFFIXES.iter().zip(&before).filter(|(_, stamp)| stamp.is_some());
            let copied = there
                .map(|(suffix, _)| copy(&beside(&original, suffix), &beside(&file, suffix)))
                .collect::<io::Result<Vec<_>>>();
            if stamps().map_err(copy_failed)? == before {
                copied.map_err(copy_failed)?;
                return Ok(Self { _dir: dir, file });
            }
        }
        Err(copy_failed(io::Error::other("it keeps changing; stop the program that uses it")))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell as Shared, io::Write as _};

    use super::*;

    fn database(dir: &Path, sql: &str) -> (PathBuf, Connection) {
        let path = dir.join("theirs.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(sql).unwrap();
        (path, connection)
    }

    fn count(path: &Path, table: &str) -> usize {
        read(path, &[table]).unwrap()[table].len()
    }

    #[test]
    fn rows_that_were_never_committed_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)";
        let (path, connection) = database(
            dir.path(),
            &format!(
                "PRAGMA journal_mode = DELETE; CREATE TABLE tasks (title TEXT);
                {many} INSERT INTO tasks SELECT 'old ' || i || hex(zeroblob(50)) FROM n;"
            ),
        );
        // A small cache makes SQLite write the pages of an open transaction to the file.
        connection.execute_batch("PRAGMA cache_size = 1; BEGIN; UPDATE tasks SET title = 'new ' || title").unwrap();
        assert!(beside(&path, "-journal").exists());
        let rows = &read(&path, &["tasks"]).unwrap()["tasks"];
        assert_eq!(rows.iter().filter(|row| row["title"].text().starts_with("new")).count(), 0);
        assert_eq!(rows.len(), 3000);
    }

    #[test]
    fn commits_in_the_log_are_read_also_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _open) = database(
            dir.path(),
            "PRAGMA journal_mode = WAL; CREATE TABLE tasks (title TEXT); INSERT INTO tasks VALUES ('a'), ('b')",
        );
        let link = dir.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!((count(&path, "tasks"), count(&link, "tasks")), (2, 2));
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error_and_one_that_is_missing_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (path, connection) =
            database(dir.path(), "CREATE TABLE tasks (id TEXT); CREATE TABLE sqlitex (id TEXT, size REAL)");
        connection.execute_batch("INSERT INTO sqlitex VALUES ('a', 1.5)").unwrap();
        connection
            .execute_batch(
                "PRAGMA writable_schema = ON;
                UPDATE sqlite_schema SET sql = 'CREATE TABLE tasks (id TEXT, x AS (theirs(id)))' WHERE name = 'tasks'",
            )
            .unwrap();
        drop(connection);
        let found = read(&path, &["sqlitex", "workflows"]).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["sqlitex"]);
        assert_eq!(found["sqlitex"][0]["size"], Cell::Real(1.5));
        let error = read(&path, &["tasks"]).unwrap_err().to_string();
        assert!(error.contains("theirs") && error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_database_that_changes_while_it_is_copied_is_copied_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("theirs.db");
        fs::write(&path, "first").unwrap();
        for (changes, settles) in [(0, true), (2, true), (ATTEMPTS, false)] {
            let copies = Shared::new(0);
            let copied = DatabaseCopy::of(&path, |from, to| {
                let length = private::copy(from, to)?;
                copies.set(copies.get() + 1);
                if copies.get() <= changes {
                    fs::OpenOptions::new().append(true).open(from)?.write_all(b", more")?;
                }
                Ok(length)
            });
            match copied {
                Ok(copy) => assert_eq!(fs::read(&copy.file).unwrap(), fs::read(&path).unwrap()),
                Err(error) => assert!(error.to_string().contains("keeps changing"), "{error}"),
            }
            assert_eq!(copies.get(), if settles { changes + 1 } else { ATTEMPTS });
        }
    }
}
