//! What is true in toft: entities, rules and verbs. No I/O, no clock of its own, no SQL.
//!
//! Start at [`verbs`]: each is a request with its rules. [`ready`] is the one rule for what can start,
//! [`lease`] decides whether a hold stands, [`keeper`] by when its holder must stop, [`change`] is the only way anything
//! is mutated, and [`store`] is what an engine must answer.

pub mod agent;
pub mod change;
pub mod checkpoint;
pub mod events;
pub mod flow;
pub mod gate;
pub mod id;
pub mod issue;
pub mod keeper;
pub mod lease;
pub mod message;
mod queue;
pub mod ready;
pub mod refusal;
pub mod repository;
pub mod retention;
pub mod rights;
pub mod secret;
pub mod sheet;
pub mod short;
pub mod store;
pub mod tables;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod time;
pub mod verbs;
pub mod workspace;
