//! For tests: the memory store that defines what a store does, a clock that stands still, and builders.

mod memory;
mod stage;

pub use memory::{MemoryStore, ManualClock};
pub use stage::{FixedProcesses, Stage, lease, now_at, plan_tasks, seeded_mint};
