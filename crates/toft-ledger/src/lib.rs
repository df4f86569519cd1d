//! The plan on disk: issues as plain lines that merge automatically.
//!
//! [`record`] is one issue with its clocks and merges two versions, [`mod@line`] its text (`digest.rs` shows which
//! fields were edited by hand), [`combine`] merges all lines of an issue into one record, [`markers`] recognises
//! conflict markers, [`mod@file`] reads and writes the file, [`open`] opens it in a directory that is not trusted.

pub mod clock;
pub mod combine;
mod digest;
pub mod file;
pub mod line;
pub mod markers;
pub mod open;
pub mod record;
