//! Golden rows: what each release wrote is read, written back, and is the same; what a newer one added stays.
//!
//! A release adds a file here; none is ever edited.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::BTreeMap, path::Path};

use rusqlite::{Connection, types::Value as Cell};
use serde_json::{Value, json};
use toft_core::{
    change::Write,
    id::{MessageId, TaskId},
    store::{Access, LeasesOf, Store as _, StoreTx, TaskQuery, WorkflowQuery, WorkspaceQuery},
};
use toft_store::SqliteStore;

/// The rows of each release, the schema they were written on, and the migrations that make it.
const RELEASES: [(&str, i64, &[&str]); 1] = [(
    include_str!("golden/0.1.0.sql"),
    5,
    &[
        include_str!("../src/sqlite/migrations/0001_foundation.sql"),
        include_str!("../src/sqlite/migrations/0002_plan.sql"),
        include_str!("../src/sqlite/migrations/0003_workspaces.sql"),
        include_str!("../src/sqlite/migrations/0004_reports.sql"),
        include_str!("../src/sqlite/migrations/0005_proposals.sql"),
    ],
)];

/// Tables with JSON in a column.
const BODIES: [(&str, &str); 11] = [
    ("repositories", "body"),
    ("worktrees", "body"),
    ("workflows", "body"),
    ("tasks", "body"),
    ("task_states", "outcome"),
    ("agents", "body"),
    ("messages", "body"),
    ("gates", "body"),
    ("workspaces", "body"),
    ("templates", "body"),
    ("attempts", "report"),
];

fn write_store(path: &Path, (rows, schema, migrations): (&str, i64, &[&str])) {
    let connection = Connection::open(path).unwrap();
    for text in migrations {
        connection.execute_batch(text).unwrap();
    }
    // Counted by a trigger; the rows of that table follow from others.
    connection.execute_batch(&format!("BEGIN; {rows} COMMIT")).unwrap();
    connection.pragma_update(None, "user_version", schema).unwrap();
    connection.pragma_update(None, "application_id", 0x746f_6674).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
}

/// Every row of every table; JSON as data, since its spelling may change.
fn dump(path: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let connection = Connection::open(path).unwrap();
    let mut names = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'issue%' AND name NOT LIKE 'sqlite%'")
        .unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    names
        .into_iter()
        .map(|name| {
            let mut statement = connection.prepare(&format!("SELECT * FROM {name} ORDER BY 1, 2")).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| (0..columns).map(|n| row.get::<_, Cell>(n)).collect()).unwrap();
            let rows = rows.map(|row: rusqlite::Result<Vec<Cell>>| row.unwrap().into_iter().map(data).collect());
            (name, rows.collect())
        })
        .collect()
}

fn data(cell: Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => number.into(),
        Cell::Real(number) => number.into(),
        Cell::Text(text) if text.starts_with('{') => serde_json::from_str(&text).unwrap(),
        Cell::Text(text) => text.into(),
        Cell::Blob(bytes) => json!(bytes),
    }
}

/// Reads everything there is and writes it back.
fn rewrite(tx: &mut dyn StoreTx, messages: &[String]) -> usize {
    let mut writes = Vec::new();
    for repository in tx.repositories().unwrap() {
        writes.extend(tx.worktrees(&repository.id).unwrap().into_iter().map(Write::Worktree));
        writes.push(Write::Repository(repository));
    }
    writes.extend(tx.workflows(&WorkflowQuery::default()).unwrap().into_iter().map(Write::Workflow));
    for task in tx.tasks(&TaskQuery::default()).unwrap() {
        let id: TaskId = task.id.clone();
        writes.push(Write::TaskState(id.clone(), task.state.clone()));
        writes.push(Write::Task(task));
        writes.extend(tx.queue_entry(&id).unwrap().map(Write::Queue));
        writes.extend(tx.dependencies(&id).unwrap().into_iter().map(|(row, _)| Write::Dependency(row)));
        writes.extend(tx.attempts(&id).unwrap().into_iter().map(Write::Attempt));
        writes.extend(tx.gates(&id).unwrap().into_iter().map(Write::Gate));
        let states = tx.states(&id).unwrap().into_iter();
        writes.extend(states.map(|(key, value)| Write::State(id.clone(), key, value)));
        tx.checkpoints(&id, 100).unwrap();
    }
    writes.extend(tx.leases(&LeasesOf::Repository(None)).unwrap().into_iter().map(Write::RenewLease));
    writes.extend(tx.agents().unwrap().into_iter().map(Write::Agent));
    writes.extend(tx.workspaces(&WorkspaceQuery::default()).unwrap().into_iter().map(Write::Workspace));
    writes.extend(tx.templates().unwrap().into_iter().map(Write::Template));
    for id in messages {
        writes.extend(tx.message(&MessageId::known(id.as_str())).unwrap().map(Write::Message));
    }
    tx.write_derived(&writes).unwrap();
    writes.len()
}

fn read_and_write_back(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    let before = dump(path);
    let messages: Vec<String> = before["messages"].iter().map(|row| row[0].as_str().unwrap().to_owned()).collect();
    let mut tx = store.begin(Access::Write).unwrap();
    assert!(rewrite(tx.as_mut(), &messages) > 20, "there are rows of every kind");
    tx.commit().unwrap();
    let after = dump(path);
    for (table, rows) in &before {
        assert_eq!(rows, &after[table], "{table}");
    }
}

#[test]
fn rows_of_every_release_are_read_and_written_back_as_they_were() {
    for release in RELEASES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toft.db");
        write_store(&path, release);
        for (table, rows) in dump(&path) {
            assert!(!rows.is_empty() || table == "ledger_files", "no golden row of {table}");
        }
        read_and_write_back(&path);
    }
}

#[test]
fn fields_of_a_newer_toft_are_still_there_after_a_write() {
    for release in RELEASES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toft.db");
        write_store(&path, release);
        let connection = Connection::open(&path).unwrap();
        for (table, column) in BODIES {
            let add =
                format!("UPDATE {table} SET {column} = json_set({column}, '$.from_later', json('{{\"n\":[1]}}'))");
            connection.execute(&add, []).unwrap();
            // Some are objects within.
            let add = format!(
                "UPDATE {table} SET {column} = json_set({column}, '$.place.floor', 3) WHERE {column} ->> '$.place' IS NOT NULL"
            );
            connection.execute(&add, []).unwrap();
        }
        drop(connection);
        read_and_write_back(&path);
        let after = dump(&path);
        for (table, _) in BODIES.iter().filter(|(table, _)| *table != "attempts") {
            let kept = after[*table].iter().flatten().filter(|cell| cell["from_later"]["n"][0] == 1).count();
            assert!(kept > 0, "{table}");
        }
    }
}
