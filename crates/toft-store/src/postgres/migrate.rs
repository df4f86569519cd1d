//! Migrations: numbered and named like those of SQLite, each applied once, under a lock.

use toft_core::store::{Result, StoreError};

use super::{
    url::StoreAddress,
    wire::{Wire, WireError, only_number},
};
use crate::value::kept;

/// Number, name, text. A migration that only adds what an older toft does not miss says so in its name: `NAME:OLDEST`, the
/// oldest schema version whose toft goes on working beside the new one.
const MIGRATIONS: &[(i64, &str, &str)] = &[
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
    (12, "spaces", include_str!("migrations/0012_spaces.sql")),
];

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

/// The schema that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundSchema {
    pub(super) newest: i64,
    /// The oldest schema version whose toft it serves.
    pub(super) serves: i64,
}

/// Refuses every schema that does not serve this toft.
pub(super) fn require_current(schema: FoundSchema) -> Result<()> {
    let (found, known) = (schema.newest, SCHEMA_VERSION);
    match () {
        () if schema.serves > known => Err(StoreError::Newer { found, known }),
        () if found < known => Err(StoreError::Older { found, known }),
        () => Ok(()),
    }
}

/// A condition: the schema serves this toft.
pub(super) fn stands() -> String {
    format!(
        "({}) <= {SCHEMA_VERSION} AND (SELECT coalesce(max(number), 0) FROM migrations) >= {SCHEMA_VERSION}",
        SERVES
    )
}

/// The oldest schema version whose toft the schema serves.
const SERVES: &str =
    "SELECT coalesce(max(coalesce(nullif(split_part(name, ':', 2), '')::bigint, number)), 0) FROM migrations";

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
    Ok(found.map(|found| found.newest))
}

/// The version of the schema; `None` if it does not exist.
pub(super) fn version(wire: &mut Wire, address: &StoreAddress) -> Result<Option<FoundSchema>> {
    let table = format!("\"{}\".migrations", address.schema);
    let there = "SELECT (to_regclass($1) IS NOT NULL)::int";
    let answers = wire.send(&[(there, &kept![table])]).map_err(failed(address))?;
    if only_number(&answers[0])? != Some(1) {
        return Ok(None);
    }
    let newest = format!("SELECT coalesce(max(number), 0) FROM {table}");
    let serves = SERVES.replace("migrations", &table);
    let answers = wire.send(&[(newest.as_str(), &[]), (serves.as_str(), &[])]).map_err(failed(address))?;
    let (newest, serves) = (only_number(&answers[0])?, only_number(&answers[1])?);
    Ok(newest.zip(serves).map(|(newest, serves)| FoundSchema { newest, serves }))
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
    let found = version(wire, address)?.map_or(0, |found| found.newest);
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
