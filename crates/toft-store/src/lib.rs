//! Storage engines for toft. Rules are in `toft-core`; this crate selects and writes rows.
//!
//! [`sqlite`] is the engine for one machine, `postgres` the one for fleets. Every engine passes the `conformance` suite.

#[cfg(not(unix))]
compile_error!("toft runs on Unix (Linux, macOS, the BSDs); on Windows, use WSL");

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod private;
mod query;
mod rows;
pub mod sqlite;
mod unknown;
mod value;
mod write;

#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use sqlite::SqliteStore;
