//! A session: an open store, the caller and its location. The crates above it use a [`Session`].
//!
//! `config.rs` reads configuration, `locate.rs` finds the store, `engine.rs` opens it, `session.rs` runs verbs on it,
//! `holds.rs` and `keep.rs` manage leases.

pub mod backup;
mod blobs;
pub mod clones;
pub mod commits;
pub mod config;
pub mod config_file;
mod distant;
pub mod engine;
pub mod error;
pub mod events;
pub mod holds;
pub mod keep;
pub mod land;
pub mod locate;
pub mod machine;
pub mod mask;
pub mod person;
pub mod processes;
pub mod provider;
pub mod recipe;
pub mod registry;
pub mod repositories;
pub mod session;
pub mod setup;
pub mod token;
pub mod transcript;
mod upkeep;

pub use error::Error;
pub use session::Session;
