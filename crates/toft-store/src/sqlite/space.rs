//! Returns free pages of the file to the file system.

use std::{collections::BTreeSet, time::Instant};

use rusqlite::Connection;
use serde_json::Value;
use toft_core::store::{Access, Result, StoreTx as _};

use super::{SqliteStore, failed};

/// Number of pages that are moved at a time, about 5 ms, so that other writers do not wait long.
const STEP: u32 = 500;

impl SqliteStore {
    /// Names of the blobs that checkpoints reference.
    pub fn referenced_blobs(&self) -> Result<BTreeSet<String>> {
        let tx = self.begin_tx(Access::Read)?;
        let doing = failed("read checkpoints");
        let sql = "SELECT body FROM checkpoints WHERE body LIKE '%\"blob\"%'";
        let mut statement = tx.connection().prepare(sql).map_err(&doing)?;
        let bodies = statement.query_map([], |row| row.get::<_, String>(0)).map_err(&doing)?;
        let mut blobs = BTreeSet::new();
        for body in bodies {
            let body: Option<Value> = serde_json::from_str(&body.map_err(&doing)?).ok();
            blobs.extend(body.and_then(|body| body["detail"]["blob"].as_str().map(str::to_owned)));
        }
        Ok(blobs)
    }

    /// Returns free pages to the file system until none are left or `until`; returns the number of bytes.
    pub fn reclaim(&self, until: Instant) -> Result<u64> {
        let before = self.ask_pragma("page_count")?;
        while self.ask_pragma("freelist_count")? > 0 && Instant::now() < until {
            let tx = self.begin_tx(Access::Write)?;
            step(tx.connection())?;
            Box::new(tx).commit()?;
        }
        let gone = before - self.ask_pragma("page_count")?;
        if gone > 0 {
            // The file shrinks when its log is merged. A reader that stands in the way only puts that off.
            self.merge_log()?;
        }
        Ok(u64::try_from(gone * self.ask_pragma("page_size")?).unwrap_or_default())
    }
}

fn step(connection: &Connection) -> Result<()> {
    let doing = failed("give space back");
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({STEP})")).map_err(&doing)?;
    let mut rows = statement.query([]).map_err(&doing)?;
    // Each row is a page.
    while rows.next().map_err(&doing)?.is_some() {}
    Ok(())
}
