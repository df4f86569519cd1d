//! PostgreSQL: one store for many machines.
//!
//! A transaction reads what it needs in one or two round trips, decides in Rust, and commits in one message: lock the
//! space, validate that every answer is still the same, write the rows, commit. So no lock is held across a network
//! round trip, every verb is serializable, and a verb whose reads changed in the meantime runs again.
//!
//! `url.rs` parses the address, `wire.rs` is one connection, `quote.rs` writes values into statements, `open.rs` keeps
//! a connection and reconnects, `read_set.rs` holds what a transaction has read and changed, `tx.rs` answers queries, `server_time.rs` is the server's clock,
//! `prefetch.rs` fetches rows in advance, `candidates.rs` reads the head of the queue, `load.rs` loads answers,
//! `commit.rs` validates and commits, `local.rs` opens files that processes of one machine share, `notifier.rs` wakes
//! waiting processes, `connect_throttle.rs` limits the number of connections, `health.rs` queries the state of the
//! server, `dump.rs` exports all rows of a space for a backup and imports them.

mod candidates;
mod commit;
mod connect_throttle;
mod dump;
mod health;
mod load;
mod local;
mod migrate;
mod notifier;
mod open;
mod owned;
mod prefetch;
mod quote;
mod read_set;
mod server_time;
mod tx;
mod url;
mod wire;

pub use health::ServerHealth;
pub use migrate::SCHEMA_VERSION;
pub use open::PostgresStore;
pub use owned::OwnedSpace;
pub use url::{in_space, named_space, without_password};

/// The text of a query only this engine has, by its file name.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/queries/", $name, ".sql"))
    };
}
use sql;
