//! Test support: the memory store that defines the behaviour of a store, a manual clock, and randomized tests.

mod generated;
mod memory;
mod play;
mod stage;

pub use generated::assert_checked_in;
pub use memory::{ManualClock, MemoryStore};
pub use play::{Bytes, Play};
pub use stage::{FixedProcesses, Stage, lease, now_at, plan_tasks, seeded_ids};
