//! The bare engine: a minimal program that does the same transactions on the same file, with the same
//! durability, and nothing else. It reads the head of the queue, writes the rows a claim and a finish write,
//! and checks no rule.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, config::DbConfig, params};

macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../../crates/toft-store/src/sqlite/queries/", $name, ".sql"))
    };
}

/// A connection set up for the same durability as toft's.
pub fn open(path: &Path, checkpoint_pages: i32) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(std::time::Duration::from_secs(60))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", checkpoint_pages)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// The id of the task at the head of a lane: one indexed query.
pub fn ready(connection: &Connection, lane: &str, limit: usize) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(sql!("queue_list"))?;
    let rows = statement.query_map(params![lane, "", "~", limit as i64], |row| row.get(4))?;
    rows.collect()
}

/// One claim: head of the queue, then the five rows a claim writes, one durable transaction.
pub fn claim(connection: &Connection, lane: &str, n: u64) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let Some(task) = ready(connection, lane, 1)?.pop() else {
        connection.prepare_cached("COMMIT")?.execute([])?;
        return Ok(None);
    };
    let now = 1_800_000_000_000i64;
    connection.prepare_cached(sql!("task_state_set"))?.execute(params![
        task,
        "leased",
        0,
        1,
        0,
        0,
        None::<i64>,
        None::<String>,
        now
    ])?;
    connection.prepare_cached(sql!("queue_drop"))?.execute([&task])?;
    // A lease that stands: toft's next look must find nothing to take back.
    let far = i64::MAX;
    connection.prepare_cached(sql!("lease_put"))?.execute(params![
        task,
        "wf_bench",
        lane,
        "ag_bench",
        1,
        "ls_000000000000",
        now,
        far,
        far,
        now,
        epoch(),
        far,
        far,
        None::<String>,
        None::<String>
    ])?;
    connection.prepare_cached(sql!("attempt_put"))?.execute(params![
        task,
        1,
        "ls_000000000000",
        "ag_bench",
        lane,
        "main",
        now,
        None::<i64>,
        None::<String>,
        None::<String>,
        None::<f64>,
        None::<String>
    ])?;
    event(connection, &task, "claim", n, lane)?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(Some(task))
}

/// One finish: the four rows it writes, one durable transaction.
pub fn finish(connection: &Connection, task: &str, lane: &str, n: u64) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let now = 1_800_000_000_000i64;
    connection.prepare_cached(sql!("lease_drop"))?.execute([task])?;
    connection.prepare_cached(sql!("attempt_put"))?.execute(params![
        task,
        1,
        "ls_000000000000",
        "ag_bench",
        lane,
        "main",
        now,
        now,
        "done",
        "m",
        None::<f64>,
        None::<String>
    ])?;
    let outcome = r#"{"summary":"m","evidence":{"commit":"c"}}"#;
    connection.prepare_cached(sql!("task_state_set"))?.execute(params![
        task,
        "done",
        0,
        1,
        0,
        0,
        None::<i64>,
        outcome,
        now
    ])?;
    event(connection, task, "task.done", n, lane)?;
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// This boot, as toft names it.
fn epoch() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn event(connection: &Connection, task: &str, verb: &str, n: u64, lane: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql!("event_append"))?.execute(params![
        1_800_000_000_000i64,
        "bench",
        lane,
        "main",
        task,
        verb,
        r#"{"fence":"1.ls_000000000000"}"#,
        format!("op_{}_{n:012}", std::process::id()),
        0
    ])?;
    Ok(())
}
