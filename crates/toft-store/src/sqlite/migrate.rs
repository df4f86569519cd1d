//! Migrations: numbered, named, each applied once. A store from a newer toft is refused.
//!
//! An upgrade first writes a verified copy beside the store, then runs in one transaction, so that an interruption
//! leaves the old schema and other processes never see a partial one.

use std::path::Path;

use rusqlite::Connection;
use toft_core::store::{Result, StoreError};

use super::failed;

/// Number, name, text.
type Migration = (i64, &'static str, &'static str);

const MIGRATIONS: &[Migration] = &[(1, "schema", include_str!("schema.sql"))];

/// The schema version of this toft.
pub const SCHEMA_VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Marks a file as toft's ("toft" in ASCII).
const APPLICATION_ID: i64 = 0x746f_6674;

/// The schema version of a store. A file without one is damaged: a store always has one.
pub(super) fn version(connection: &Connection) -> Result<i64> {
    let path = || connection.path().unwrap_or_default().to_owned();
    let version = user_version(connection)?;
    let id: i64 = pragma(connection, "application_id")?;
    if version == 0 && id == 0 && empty(connection)? {
        return Err(StoreError::Damaged { place: path(), reason: "it has no tables".into() });
    }
    if version == 0 || id != APPLICATION_ID {
        return Err(StoreError::Unsuitable { path: path(), reason: "it is another program's database".into() });
    }
    Ok(version)
}

/// The schema version in the current transaction.
pub(super) fn user_version(connection: &Connection) -> Result<i64> {
    pragma(connection, "user_version")
}

/// Refuses a transaction on a schema that is not this toft's. It reads one number from a page that every transaction
/// reads.
pub(super) fn require_current(connection: &Connection) -> Result<()> {
    let known = SCHEMA_VERSION;
    match user_version(connection)? {
        found if found > known => Err(StoreError::Newer { found, known }),
        found if found < known => Err(StoreError::Older { found, known }),
        _ => Ok(()),
    }
}

fn pragma(connection: &Connection, name: &str) -> Result<i64> {
    let doing = failed("read the schema version");
    let mut statement = connection.prepare_cached(&format!("PRAGMA {name}")).map_err(&doing)?;
    statement.query_row([], |row| row.get(0)).map_err(doing)
}

fn empty(connection: &Connection) -> Result<bool> {
    connection
        .query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
        .map_err(failed("read the schema"))
}

/// Upgrades a store to the newest schema.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    migrate_with(connection, path, MIGRATIONS)
}

/// Creates the newest schema in an empty file.
pub(super) fn migrate_new(connection: &mut Connection) -> Result<()> {
    run_migrations(connection, MIGRATIONS, |_| Ok(0))
}

fn migrate_with(connection: &mut Connection, path: &Path, migrations: &[Migration]) -> Result<()> {
    let newest = migrations.last().map_or(0, |(number, ..)| *number);
    let found = version(connection)?;
    if found > newest {
        return Err(StoreError::Newer { found, known: newest });
    }
    if found == newest {
        return Ok(());
    }
    copy_aside(connection, path, found)?;
    run_migrations(connection, migrations, version)
}

/// Runs the missing migrations in one transaction; `version` is read once no other process writes.
fn run_migrations(
    connection: &mut Connection,
    migrations: &[Migration],
    version: impl FnOnce(&Connection) -> Result<i64>,
) -> Result<()> {
    let doing = failed("upgrade the schema");
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(&doing)?;
    let found = version(&tx)?;
    for (number, _, text) in migrations.iter().filter(|(number, ..)| *number > found) {
        tx.execute_batch(text).map_err(&doing)?;
        tx.pragma_update(None, "user_version", number).map_err(&doing)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(&doing)?;
    tx.commit().map_err(&doing)
}

/// A verified copy of the old store, kept beside it.
fn copy_aside(connection: &Connection, path: &Path, version: i64) -> Result<()> {
    let copy = path.with_extension(format!("before-upgrade-from-{version}.db"));
    if copy.exists() {
        return Ok(());
    }
    let draft = path.with_extension(format!("copying-{}", std::process::id()));
    super::file::copy_to(connection, &draft)?;
    std::fs::rename(&draft, &copy).map_err(|error| StoreError::io("keep a copy of the store", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The migrations of a made-up later version.
    const LATER_MIGRATIONS: &[Migration] = &[MIGRATIONS[0], (2, "notes", "CREATE TABLE notes (id TEXT)")];
    const BROKEN_MIGRATIONS: &[Migration] =
        &[MIGRATIONS[0], (2, "broken", "CREATE TABLE notes (id TEXT); INSERT INTO nowhere VALUES (1)")];

    fn fresh(dir: &Path) -> (Connection, std::path::PathBuf) {
        let path = dir.join("toft.db");
        let mut connection = Connection::open(&path).unwrap();
        run_migrations(&mut connection, MIGRATIONS, |_| Ok(0)).unwrap();
        connection.execute("INSERT INTO repositories VALUES ('rp_1', '{}')", []).unwrap();
        (connection, path)
    }

    #[test]
    fn an_upgrade_keeps_every_row_and_a_copy_of_the_old_store() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = fresh(dir.path());
        migrate_with(&mut connection, &path, LATER_MIGRATIONS).unwrap();
        assert_eq!(version(&connection).unwrap(), 2);
        let copy = Connection::open(path.with_extension("before-upgrade-from-1.db")).unwrap();
        assert_eq!(version(&copy).unwrap(), 1);
        for store in [&connection, &copy] {
            let rows: i64 = store.query_row("SELECT count(*) FROM repositories", [], |row| row.get(0)).unwrap();
            assert_eq!(rows, 1);
        }
    }

    #[test]
    fn an_interrupted_upgrade_leaves_the_old_schema_and_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = fresh(dir.path());
        assert!(migrate_with(&mut connection, &path, BROKEN_MIGRATIONS).is_err());
        assert_eq!(version(&connection).unwrap(), 1);
        migrate_with(&mut connection, &path, LATER_MIGRATIONS).unwrap();
        assert_eq!(version(&connection).unwrap(), 2);
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = fresh(dir.path());
        connection.pragma_update(None, "user_version", 99).unwrap();
        let error = migrate(&mut connection, &path).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 99, known: SCHEMA_VERSION }));
    }

    #[test]
    fn what_a_later_toft_upgraded_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = fresh(dir.path());
        migrate_with(&mut connection, &path, LATER_MIGRATIONS).unwrap();
        let refused = require_current(&connection).unwrap_err();
        assert!(matches!(refused, StoreError::Newer { found: 2, known: SCHEMA_VERSION }));
    }

    #[test]
    fn another_programs_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.db");
        let mut connection = Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE theirs (id)").unwrap();
        assert!(matches!(migrate(&mut connection, &path), Err(StoreError::Unsuitable { .. })));
        connection.pragma_update(None, "user_version", 1).unwrap();
        assert!(matches!(migrate(&mut connection, &path), Err(StoreError::Unsuitable { .. })));
    }
}
