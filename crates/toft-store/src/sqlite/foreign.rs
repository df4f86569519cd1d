//! Databases of other programs: read from a copy, so that the originals do not change.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, types::ValueRef};
use toft_core::store::{Result, StoreError};

use super::{failed, file::beside};
use crate::private::{self, TempDir};

/// A larger database is not the issue store of a tool.
const LARGEST: u64 = 4 << 30;

/// The value of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number.
    Number(i64),
    /// A text, or a number with a fraction.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Cell {
    /// As text.
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

/// One row by column name; null values are left out.
pub type Row = BTreeMap<String, Cell>;

/// Every table of a database, by name. The file and its unmerged log are copied first.
pub fn read(path: &Path) -> Result<BTreeMap<String, Vec<Row>>> {
    let copy = Copy::of(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&copy.file, flags).map_err(failed("open that database"))?;
    let read = |error| failed("read that database")(error);
    let mut tables = BTreeMap::new();
    let mut names = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .map_err(read)?;
    let names = names.query_map([], |row| row.get::<_, String>(0)).map_err(read)?;
    for name in names.collect::<rusqlite::Result<Vec<_>>>().map_err(read)? {
        let sql = format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""));
        // A table that needs a module of its own is nobody else's to read.
        let Ok(mut statement) = connection.prepare(&sql) else { continue };
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let rows = statement
            .query_map([], |row| {
                let mut cells = Row::new();
                for (n, column) in columns.iter().enumerate() {
                    let cell = match row.get_ref(n)? {
                        ValueRef::Null => continue,
                        ValueRef::Integer(number) => Cell::Number(number),
                        ValueRef::Real(number) => Cell::Text(number.to_string()),
                        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
                    };
                    cells.insert(column.clone(), cell);
                }
                Ok(cells)
            })
            .map_err(read)?;
        tables.insert(name, rows.collect::<rusqlite::Result<_>>().map_err(read)?);
    }
    Ok(tables)
}

/// A temporary copy.
struct Copy {
    _dir: TempDir,
    file: PathBuf,
}

impl Copy {
    fn of(path: &Path) -> Result<Self> {
        let doing = |cause: std::io::Error| StoreError::io(format!("copy {}", path.display()), &cause);
        let size = fs::metadata(path).map_err(doing)?.len();
        if size > LARGEST {
            return Err(doing(std::io::Error::other("it is too large")));
        }
        let dir = TempDir::new("import").map_err(doing)?;
        let copy = Self { file: dir.path().join("copy.db"), _dir: dir };
        private::copy(path, &copy.file).map_err(doing)?;
        let log = beside(path, "-wal");
        if log.exists() {
            private::copy(&log, &beside(&copy.file, "-wal")).map_err(doing)?;
        }
        Ok(copy)
    }
}
