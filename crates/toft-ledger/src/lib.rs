//! The plan on disk: issues as plain lines that merge by themselves.
//!
//! [`record`] is one issue with its clocks and how two versions become one, [`mod@line`] its text (`digest.rs` tells what was edited
//! in it by hand), [`combine`] makes one record of all lines of an issue, [`markers`] is what merges leave between lines,
//! [`mod@file`] the file they stand in, [`open`] how it is opened in a directory that is not trusted.

pub mod clock;
pub mod combine;
mod digest;
pub mod file;
pub mod line;
pub mod markers;
pub mod open;
pub mod record;
