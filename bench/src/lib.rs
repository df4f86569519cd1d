//! What the measurements share: filling a store, timing, and the bare program to compare with.

pub mod bare;
pub mod fill;
pub mod timing;
