//! Migrations: numbered and named like those of SQLite, each applied once, under a lock.

use std::cmp::Ordering;

use toft_core::store::{Result, StoreError};

use super::{
    url::StoreAddress,
    wire::{Wire, WireError, only_number},
};
use crate::value::kept;

/// Number, name, text.
const MIGRATIONS: &[(i64, &str, &str)] = &[(1, "schema", include_str!("schema.sql"))];

fn failed(address: &StoreAddress) -> impl Fn(WireError) -> StoreError {
    let server = address.shown.clone();
    move |trouble| match trouble {
        WireError::Refused { text, .. } => StoreError::Failed { doing: format!("set up {server}"), cause: text },
        WireError::Lost(cause) => StoreError::Unreachable { server: server.clone(), cause },
    }
}

/// The schema version of this toft.
pub const SCHEMA_VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// What opening a store may do to its schema. A server is shared, so an ordinary command never upgrades it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// It must be the newest.
    Require,
    /// An older one is upgraded.
    Upgrade,
    /// A missing one is created, an older one upgraded.
    Create,
}

/// Refuses every schema but this toft's.
pub(super) fn require_current(found: i64) -> Result<()> {
    let known = SCHEMA_VERSION;
    match found.cmp(&known) {
        Ordering::Greater => Err(StoreError::Newer { found, known }),
        Ordering::Less => Err(StoreError::Older { found, known }),
        Ordering::Equal => Ok(()),
    }
}

/// A condition: the schema is this toft's.
pub(super) fn stands() -> String {
    format!("(SELECT coalesce(max(number), 0) FROM migrations) = {SCHEMA_VERSION}")
}

/// Creates or upgrades the schema as far as `schema` allows; returns the version that was found.
pub(super) fn bring_up(wire: &mut Wire, address: &StoreAddress, schema: Schema) -> Result<Option<i64>> {
    let found = version(wire, address)?;
    match (found.map(require_current), schema) {
        (Some(Ok(())), _) => {}
        (Some(Err(StoreError::Older { .. })), Schema::Upgrade | Schema::Create) | (None, Schema::Create) => {
            upgrade(wire, address)?;
        }
        (Some(Err(error)), _) => return Err(error),
        (None, _) => return Err(StoreError::Missing { path: address.shown.clone() }),
    }
    Ok(found)
}

/// The version of the schema; `None` if it does not exist.
pub(super) fn version(wire: &mut Wire, address: &StoreAddress) -> Result<Option<i64>> {
    let table = format!("\"{}\".migrations", address.schema);
    let there = "SELECT (to_regclass($1) IS NOT NULL)::int";
    let answers = wire.send(&[(there, &kept![table])]).map_err(failed(address))?;
    if only_number(&answers[0])? != Some(1) {
        return Ok(None);
    }
    let newest = format!("SELECT coalesce(max(number), 0) FROM {table}");
    let answers = wire.send(&[(newest.as_str(), &[])]).map_err(failed(address))?;
    only_number(&answers[0])
}

/// All in one transaction: an interruption leaves the old schema.
fn upgrade(wire: &mut Wire, address: &StoreAddress) -> Result<()> {
    let schema = &address.schema;
    let begin = format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('toft {schema}', 2)); \
         CREATE SCHEMA IF NOT EXISTS \"{schema}\"; SET LOCAL search_path = \"{schema}\"; \
         CREATE TABLE IF NOT EXISTS migrations (number bigint PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT now());"
    );
    wire.batch(&begin).map_err(failed(address))?;
    let found = version(wire, address)?.unwrap_or_default();
    let mut text = String::new();
    for (number, name, migration) in MIGRATIONS.iter().filter(|(number, ..)| *number > found) {
        text.push_str(migration);
        text.push_str(&format!("INSERT INTO migrations (number, name) VALUES ({number}, '{name}');\n"));
    }
    text.push_str("COMMIT;");
    let done = wire.batch(&text);
    if done.is_err() {
        // The transaction is over already; this only clears it away.
        let _ = wire.batch("ROLLBACK");
    }
    done.map_err(failed(address))
}
