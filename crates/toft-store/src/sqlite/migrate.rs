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

const MIGRATIONS: &[Migration] = &[
    (1, "foundation", include_str!("migrations/0001_foundation.sql")),
    (2, "plan", include_str!("migrations/0002_plan.sql")),
    (3, "workspaces", include_str!("migrations/0003_workspaces.sql")),
    (4, "reports", include_str!("migrations/0004_reports.sql")),
    (5, "proposals", include_str!("migrations/0005_proposals.sql")),
    (6, "holds", include_str!("migrations/0006_holds.sql")),
    (7, "queue_keys", include_str!("migrations/0007_queue_keys.sql")),
    (8, "retention", include_str!("migrations/0008_retention.sql")),
    (9, "people", include_str!("migrations/0009_people.sql")),
    (10, "landings", include_str!("migrations/0010_landings.sql")),
    (11, "tokens", include_str!("migrations/0011_tokens.sql")),
];

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

    const BROKEN: &[Migration] =
        &[MIGRATIONS[0], (2, "broken", "CREATE TABLE notes (id TEXT); INSERT INTO nowhere VALUES (1)")];

    fn fresh(dir: &Path) -> (Connection, std::path::PathBuf) {
        made_by(dir, MIGRATIONS)
    }

    /// A store of the first version of toft.
    fn old(dir: &Path) -> (Connection, std::path::PathBuf) {
        made_by(dir, &MIGRATIONS[..1])
    }

    fn made_by(dir: &Path, migrations: &[Migration]) -> (Connection, std::path::PathBuf) {
        let path = dir.join("toft.db");
        let mut connection = Connection::open(&path).unwrap();
        run_migrations(&mut connection, migrations, |_| Ok(0)).unwrap();
        connection.execute("INSERT INTO repositories VALUES ('rp_1', '{}')", []).unwrap();
        (connection, path)
    }

    /// `TOFT_BLESS=1` writes the snapshot again; a reviewer reads its diff.
    #[test]
    fn the_schema_snapshot_is_the_sum_of_the_migrations() {
        let dir = tempfile::tempdir().unwrap();
        let (connection, _) = fresh(dir.path());
        let mut statement =
            connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
        let parts = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let schema = parts.map(|part| part.unwrap() + ";\n").collect::<Vec<_>>().join("\n");
        let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/schema.sql");
        if std::env::var_os("TOFT_BLESS").is_some() {
            std::fs::write(&snapshot, &schema).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&snapshot).unwrap_or_default(), schema);
    }

    #[test]
    fn an_upgrade_keeps_every_row_and_a_copy_of_the_old_store() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = old(dir.path());
        migrate(&mut connection, &path).unwrap();
        assert_eq!(version(&connection).unwrap(), SCHEMA_VERSION);
        let copy = Connection::open(path.with_extension("before-upgrade-from-1.db")).unwrap();
        assert_eq!(version(&copy).unwrap(), 1);
        for store in [&connection, &copy] {
            let rows: i64 = store.query_row("SELECT count(*) FROM repositories", [], |row| row.get(0)).unwrap();
            assert_eq!(rows, 1);
        }
    }

    #[test]
    fn an_upgrade_fills_in_the_keys_of_what_is_queued() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = made_by(dir.path(), &MIGRATIONS[..5]);
        connection
            .execute_batch(
                r#"
                INSERT INTO workflows (id, status, lane_open, created, body) VALUES ('wf_1', 'running', 0, 1, '{}');
                INSERT INTO tasks VALUES
                    ('tk_1', 'wf_1', 0, 'rp_1', 'main', 1, '{"labels":["ü","a b","a b"],"requires":["rust","gpu","rust"]}'),
                    ('tk_2', 'wf_1', 0, 'rp_1', NULL, 1, '{}'),
                    ('tk_3', 'wf_1', 0, 'rp_1', 'main', 1, '{"labels":["x"],"requires":["gpu"]}'),
                    ('tk_4', 'wf_1', 0, 'rp_1', 'main', 1, '{"labels":["x"],"requires":["gpu"]}');
                INSERT INTO task_states VALUES
                    ('tk_1', 'wf_1', 'pending', 0, 0, 0, 0, NULL, NULL, 1, 'rp_1', '1'),
                    ('tk_2', 'wf_1', 'pending', 0, 0, 0, 0, NULL, NULL, 1, 'rp_1/wf_1', '2'),
                    ('tk_3', 'wf_1', 'pending', 0, 0, 0, 0, NULL, NULL, 1, 'rp_1~', '3'),
                    ('tk_4', 'wf_1', 'leased', 0, 0, 0, 0, NULL, NULL, 1, NULL, NULL);
                "#,
            )
            .unwrap();
        migrate(&mut connection, &path).unwrap();
        let rows = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().map(|row| row.unwrap()).collect()
        };
        assert_eq!(
            rows("SELECT concat_ws(' ', id, lane, worktree, labels) FROM task_states ORDER BY id"),
            [r#"tk_1 rp_1+["gpu","rust"] main ["a b","ü"]"#, "tk_2 rp_1/wf_1", r#"tk_3 rp_1~ main ["x"]"#, "tk_4"]
        );
        assert_eq!(
            rows("SELECT concat_ws(' ', label, lane, rank, task) FROM queue_labels ORDER BY rank, label"),
            [r#"a b rp_1+["gpu","rust"] 1 tk_1"#, r#"ü rp_1+["gpu","rust"] 1 tk_1"#, "x rp_1~ 3 tk_3"]
        );
    }

    #[test]
    fn an_interrupted_upgrade_leaves_the_old_schema_and_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let (mut connection, path) = old(dir.path());
        assert!(migrate_with(&mut connection, &path, BROKEN).is_err());
        assert_eq!(version(&connection).unwrap(), 1);
        migrate(&mut connection, &path).unwrap();
        assert_eq!(version(&connection).unwrap(), SCHEMA_VERSION);
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
