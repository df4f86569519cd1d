//! The plan on disk: issues as plain lines that merge by themselves.
//!
//! [`record`] is one issue with its clocks and how two versions become one, [`mod@line`] its text, [`markers`] what merges
//! leave between lines, [`mod@file`] the file they stand in.

pub mod clock;
pub mod file;
pub mod line;
pub mod markers;
pub mod record;
