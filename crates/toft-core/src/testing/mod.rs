//! For tests: the memory store that defines what a store does, a clock that stands still, and random play.

mod memory;
mod play;
mod stage;

pub use memory::{ManualClock, MemoryStore};
pub use play::{Bytes, Play};
pub use stage::{FixedProcesses, Stage, lease, now_at, plan_tasks, seeded_ids};
