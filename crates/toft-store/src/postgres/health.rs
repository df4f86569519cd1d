//! The state of the server, for `toft doctor`.

use std::time::Duration;

use toft_core::store::{Result, StoreError};

use super::{open::PostgresStore, sql};

/// The oldest supported server version.
const OLDEST: i64 = 140_000;
/// A snapshot older than this keeps so many dead rows that claims become slower.
const OLD_SNAPSHOT: Duration = Duration::from_secs(60);
/// More dead rows than this show that vacuum does not keep up.
const MANY_DEAD: i64 = 1_000_000;

/// The state of a server.
#[derive(Clone, Debug)]
pub struct ServerHealth {
    /// Its version number.
    pub version: i64,
    /// Whether a commit waits for the disk and for standbys.
    pub synchronous_commit: String,
    /// Whether it writes to disk durably at all.
    pub fsync: String,
    /// Number of standbys that a commit waits for.
    pub standbys: i64,
    /// Age of the oldest snapshot in use.
    pub oldest_snapshot: Duration,
    /// Number of replication slots without a client that keep dead rows.
    pub idle_slots: i64,
    /// Number of dead rows in the table that has the most.
    pub dead_rows: i64,
    /// Whether the role sees replication and the sessions of other roles.
    pub sees_others: bool,
}

impl ServerHealth {
    /// Problems that can lose work.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.version < OLDEST {
            faults.push(format!("version {} is older than 14", self.version / 10_000));
        }
        if self.fsync != "on" {
            faults.push("fsync is off: a crash loses acknowledged work".into());
        }
        if ["off", "local"].contains(&self.synchronous_commit.as_str()) {
            faults.push(format!("synchronous_commit is {}: a crash loses acknowledged work", self.synchronous_commit));
        }
        faults
    }

    /// Problems that the user should know about.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.oldest_snapshot > OLD_SNAPSHOT {
            let age = self.oldest_snapshot.as_secs();
            warnings.push(format!("a session holds a snapshot {age} s old: dead rows pile up until it ends"));
        }
        if self.idle_slots > 0 {
            let count = self.idle_slots;
            warnings
                .push(format!("{count} replication slots without a client: dead rows pile up until they are dropped"));
        }
        if !self.sees_others {
            warnings.push(
                "standbys and sessions of other roles are not visible: GRANT pg_read_all_stats to this role".into(),
            );
        }
        if self.dead_rows > MANY_DEAD {
            warnings.push(format!("{} dead rows in one table: autovacuum does not keep up", self.dead_rows));
        }
        warnings
    }
}

impl PostgresStore {
    /// Queries the state of the server.
    pub fn health(&self) -> Result<ServerHealth> {
        let rows = self.now(sql!("health"), &[])?;
        let nothing = || StoreError::Failed { doing: "ask the server".into(), cause: "it said nothing".into() };
        let row = rows.first().ok_or_else(nothing)?;
        Ok(ServerHealth {
            version: row.number(0)?,
            synchronous_commit: row.word(1)?.to_owned(),
            fsync: row.word(2)?.to_owned(),
            standbys: row.number(3)?,
            oldest_snapshot: Duration::from_secs(row.number(4)?.unsigned_abs()),
            idle_slots: row.number(5)?,
            dead_rows: row.number(6)?,
            sees_others: row.number(7)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_snapshot_and_unsafe_settings_are_told() {
        let well = ServerHealth {
            version: 150_018,
            synchronous_commit: "on".into(),
            fsync: "on".into(),
            standbys: 0,
            oldest_snapshot: Duration::from_secs(1),
            idle_slots: 0,
            dead_rows: 10,
            sees_others: true,
        };
        assert!(well.faults().is_empty() && well.warnings().is_empty());
        let ill = ServerHealth {
            version: 130_000,
            synchronous_commit: "off".into(),
            fsync: "off".into(),
            oldest_snapshot: Duration::from_secs(90),
            idle_slots: 1,
            dead_rows: 2_000_000,
            sees_others: false,
            ..well
        };
        assert_eq!((ill.faults().len(), ill.warnings().len()), (3, 4));
    }
}
