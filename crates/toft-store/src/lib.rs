//! Stores for toft. Rules live in `toft-core`; here rows are selected and put down.
//!
//! [`sqlite`] is the engine for one machine. Every engine passes the `conformance` suite.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod sqlite;

pub use sqlite::SqliteStore;
