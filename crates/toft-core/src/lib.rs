//! Entities, rules and verbs of toft. No I/O, no clock of its own, no SQL.
//!
//! Start at [`verbs`]: each is a request with its rules. [`ready`] is the one rule for what can start, [`lease`]
//! decides whether a lease is valid, [`keeper`] when its holder must stop, [`change`] is the only way to modify rows,
//! and [`store`] is the interface of a storage engine.

pub mod agent;
pub mod change;
pub mod checkpoint;
pub mod events;
pub mod flow;
pub mod gate;
pub mod id;
pub mod issue;
pub mod json;
pub mod keeper;
pub mod landing;
pub mod lease;
pub mod login;
pub mod may;
pub mod message;
mod queue;
pub mod ready;
pub mod refusal;
pub mod repository;
pub mod retention;
pub mod rights;
pub mod schema;
pub mod secret;
pub mod sheet;
pub mod short;
pub mod store;
pub mod tables;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod time;
pub mod token;
pub mod verbs;
pub mod wire;
pub mod workspace;
