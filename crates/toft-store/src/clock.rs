//! The clock of one machine: wall time for people, and the monotonic clock of this boot for leases.

use std::time::{SystemTime, UNIX_EPOCH};

use toft_core::time::{Now, Tick, Timestamp, millis};

/// Says what time it is.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Now;
}

/// This machine's clocks. The monotonic one stands still while a laptop sleeps.
#[derive(Debug)]
pub struct MachineClock {
    boot: String,
}

impl MachineClock {
    /// The clocks of this boot.
    pub fn new() -> Self {
        Self { boot: boot_id() }
    }
}

impl Default for MachineClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Now {
        Now { wall: wall(), tick: Tick { epoch: self.boot.clone(), ms: monotonic_ms() } }
    }
}

#[cfg(feature = "conformance")]
impl Clock for toft_core::testing::ManualClock {
    fn now(&self) -> Now {
        Self::now(self)
    }
}

fn wall() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map(millis).unwrap_or_default())
}

#[cfg(unix)]
fn monotonic_ms() -> i64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(|at| at.tv_sec() * 1_000 + at.tv_nsec() / 1_000_000).unwrap_or_default()
}

#[cfg(not(unix))]
fn monotonic_ms() -> i64 {
    wall().0
}

/// A name for this boot of this machine. Where the kernel gives none, the time of boot to ten minutes.
pub fn boot_id() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => format!("boot-{}", (wall().0 - monotonic_ms()) / 600_000),
    }
}
