//! Exports and imports all rows of a space as JSON texts.

use serde_json::Value as Json;
use toft_core::store::{Result, StoreError};

use super::{
    migrate,
    open::PostgresStore,
    sql,
    wire::{BEGIN, Wire, WireError, WireRow, only_number},
};
use crate::value::{Value, kept};

/// Number of rows per round trip.
const BATCH: usize = 500;

/// Tables whose first column is the space. Waiters and versions belong to processes, which a backup does not contain.
const TABLES: &str = "SELECT table_name FROM information_schema.columns \
    WHERE table_schema = current_schema() AND column_name = 'space' AND table_name NOT IN ('waiters', 'space_versions') ORDER BY 1";

/// A token is of one space: its digest is there once in the whole schema.
const TOKENS: &str = "tokens";

impl PostgresStore {
    /// Calls `take` with the table and the JSON of every row of this space, all from one snapshot. Returns the schema
    /// version.
    pub fn dump(&self, mut take: impl FnMut(&str, &str) -> Result<()>) -> Result<i64> {
        let mut wire = self.second_wire("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        for table in self.tables(&mut wire)? {
            let declare =
                format!("DECLARE dumped CURSOR FOR SELECT row_to_json(t)::text FROM \"{table}\" t WHERE space = $1");
            self.send(&mut wire, &declare, &kept![self.space()])?;
            let fetch = format!("FETCH {BATCH} FROM dumped");
            loop {
                let rows = self.send(&mut wire, &fetch, &[])?;
                for row in &rows {
                    take(&table, row.word(0)?)?;
                }
                if rows.len() < BATCH {
                    break;
                }
            }
            self.send(&mut wire, "CLOSE dumped", &[])?;
        }
        self.send(&mut wire, "COMMIT", &[])?;
        Ok(migrate::SCHEMA_VERSION)
    }

    /// Whether the space has no rows at all.
    pub fn is_empty(&self) -> Result<bool> {
        let mut wire = self.second_wire(BEGIN)?;
        let empty = self.space_is_empty(&mut wire)?;
        self.send(&mut wire, "COMMIT", &[])?;
        Ok(empty)
    }

    /// Inserts rows into this space in one transaction; `next` returns them in batches until it returns none. Existing
    /// rows are moved to the space `aside` first; without one, existing rows are an error.
    pub fn load(&self, aside: Option<&str>, mut next: impl FnMut() -> Result<Vec<(String, String)>>) -> Result<()> {
        let mut wire = self.second_wire(BEGIN)?;
        // Rows go to another space.
        self.send(&mut wire, "SELECT set_config('toft.space', '', true)", &[])?;
        self.send(&mut wire, sql!("turn"), &kept![self.space()])?;
        self.send(&mut wire, sql!("version_move"), &kept![self.space()])?;
        let tables = self.tables(&mut wire)?;
        match aside {
            Some(aside) => {
                // Tokens stay: one that was revoked since the backup does not come back, and others still count.
                for table in tables.iter().filter(|table| *table != TOKENS) {
                    let update = format!("UPDATE \"{table}\" SET space = $2 WHERE space = $1");
                    self.send(&mut wire, &update, &kept![self.space(), aside])?;
                }
            }
            None if !self.space_is_empty(&mut wire)? => {
                let reason = "the space has rows already".to_owned();
                return Err(StoreError::Unsuitable { path: self.shown().to_owned(), reason });
            }
            None => {}
        }
        loop {
            let batch = next()?;
            if batch.is_empty() {
                break;
            }
            for same in batch.chunk_by(|a, b| a.0 == b.0) {
                let table = &same[0].0;
                if !tables.contains(table) {
                    let reason = format!("it has rows of `{table}`, which this schema has not");
                    return Err(StoreError::Unsuitable { path: "the backup".into(), reason });
                }
                let rows = same.iter().map(|(_, row)| self.in_this_space(row)).collect::<Result<Vec<_>>>()?;
                let there = if table == TOKENS { " ON CONFLICT DO NOTHING" } else { "" };
                let insert = format!(
                    "INSERT INTO \"{table}\" SELECT * FROM json_populate_recordset(NULL::\"{table}\", $1::json){there}"
                );
                self.send(&mut wire, &insert, &kept![Json::Array(rows).to_string()])?;
            }
        }
        self.send(&mut wire, "COMMIT", &[])?;
        Ok(())
    }

    fn in_this_space(&self, row: &str) -> Result<Json> {
        let mut row: Json = serde_json::from_str(row).map_err(|error| StoreError::Unreadable {
            table: "backup_rows".into(),
            id: row.chars().take(40).collect(),
            cause: error.to_string(),
        })?;
        row["space"] = self.space().into();
        Ok(row)
    }

    fn space_is_empty(&self, wire: &mut Wire) -> Result<bool> {
        for table in self.tables(wire)? {
            let there = format!("SELECT count(*) FROM (SELECT 1 FROM \"{table}\" WHERE space = $1 LIMIT 1) t");
            if only_number(&self.send(wire, &there, &kept![self.space()])?)? != Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn tables(&self, wire: &mut Wire) -> Result<Vec<String>> {
        let rows = self.send(wire, TABLES, &[])?;
        rows.iter().map(|row| row.word(0).map(str::to_owned)).collect()
    }

    /// A separate connection in a transaction. Closing it without a commit changes nothing.
    pub(super) fn second_wire(&self, begin: &str) -> Result<Wire> {
        let mut wire = self.another_wire()?;
        self.send(&mut wire, begin, &[])?;
        if let Some(settings) = wire.local_settings.clone() {
            self.send(&mut wire, &settings, &[])?;
        }
        self.send(&mut wire, sql!("schema_stands"), &kept![migrate::SCHEMA_VERSION])?;
        Ok(wire)
    }

    pub(super) fn send(&self, wire: &mut Wire, text: &str, values: &[Value<'_>]) -> Result<Vec<WireRow>> {
        match wire.send(&[(text, values)]) {
            Ok(mut answers) => Ok(answers.pop().unwrap_or_default()),
            Err(WireError::Refused { text, .. }) => {
                Err(StoreError::Failed { doing: "ask the server".into(), cause: text })
            }
            Err(WireError::Lost(cause)) => Err(StoreError::Unreachable { server: self.shown().to_owned(), cause }),
        }
    }
}
