//! PostgreSQL: many machines, one truth.
//!
//! A transaction reads what it needs in one or two journeys, decides in Rust, and hands everything over in one:
//! take the lock of the space, see that every answer is still what it was, put the rows down, commit. So no lock is
//! held while anything crosses the network, every verb is as safe as if it ran alone, and a verb whose facts changed
//! meanwhile runs again.
//!
//! `url.rs` reads the address, `wire.rs` is one connection, `quote.rs` writes values into statements, `open.rs` keeps a
//! connection and makes it anew, `read_set.rs` is what a transaction has read and changed, `tx.rs` answers questions,
//! `prefetch.rs` asks before it is asked, `candidates.rs` reads the head of the queue, `load.rs` takes answers in,
//! `commit.rs` hands over, `local.rs` opens files that processes of one machine share, `notifier.rs` wakes waiters, `connect_throttle.rs` keeps a crowd from knocking at once, `health.rs` asks the server how it is,
//! `dump.rs` reads all rows of a space for a backup and brings them back.

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
mod prefetch;
mod quote;
mod read_set;
mod tx;
mod url;
mod wire;

pub use health::ServerHealth;
pub use migrate::SCHEMA_VERSION;
pub use open::PostgresStore;
pub use url::without_password;

/// The text of a query only this engine has, by its file name.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("queries/", $name, ".sql"))
    };
}
use sql;
