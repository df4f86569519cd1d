//! Private PostgreSQL servers for toft's tests and measurements.
//!
//! [`Cluster`] is one server, [`Pair`] a primary with a synchronous standby, [`Patroni`] three servers that replace their
//! leader by themselves behind a proxy, [`Bouncer`] a PgBouncer in front of a server, and
//! [`BackupRepository`] a server's backups. Each lives in a fresh folder on a free loopback port, and is ended and removed when dropped. A value kept in
//! a `static` is never dropped, and a test process that is itself killed leaves its servers behind.
//!
//! This is test support: whatever goes wrong ends in a panic that says what it was, and nothing waits for ever.
//!
//! The servers refuse to run as root. If we are root, they run as the user `postgres`, by way of `runuser`; that user
//! must be able to reach the folder for temporary files.

mod backup;
mod bouncer;
mod cluster;
mod pair;
mod patroni;
mod process;

pub use backup::{BackupRepository, backup_available};
pub use bouncer::{Bouncer, bouncer_available};
pub use cluster::Cluster;
pub use pair::Pair;
pub use patroni::{Fault, Patroni, patroni_available};

/// Whether a PostgreSQL server is installed: the newest below `/usr/lib/postgresql`, or else one on the `PATH`.
#[must_use]
pub fn available() -> bool {
    process::programs().is_some()
}
