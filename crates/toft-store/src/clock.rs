//! The clock of one machine: wall time for people, and the monotonic clock of this boot for leases.

use std::{
    sync::OnceLock,
    time::{SystemTime, UNIX_EPOCH},
};

use toft_core::time::{Now, Tick, Timestamp, millis};

/// A source of time.
pub trait TimeSource: Send + Sync {
    /// The current time.
    fn now(&self) -> Now;
}

/// This machine's clocks. The monotonic clock does not advance while a laptop sleeps.
#[derive(Debug)]
pub struct MachineClock {
    boot: String,
}

impl MachineClock {
    /// The clocks of this boot.
    pub fn new() -> Self {
        Self { boot: clock_id() }
    }
}

impl Default for MachineClock {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeSource for MachineClock {
    fn now(&self) -> Now {
        Now { wall: wall(), tick: Tick { epoch: self.boot.clone(), ms: monotonic_ms() } }
    }
}

#[cfg(feature = "conformance")]
impl TimeSource for toft_core::testing::ManualClock {
    fn now(&self) -> Now {
        Self::now(self)
    }
}

fn wall() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map(millis).unwrap_or_default())
}

fn monotonic_ms() -> i64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(|at| at.tv_sec() * 1_000 + at.tv_nsec() / 1_000_000).unwrap_or_default()
}

/// Names the monotonic clock of this boot. Processes in a time namespace of their own read another one.
fn clock_id() -> String {
    let boot = boot_id();
    match std::fs::read_link("/proc/self/ns/time") {
        Ok(namespace) if namespace.as_os_str() != FIRST_TIME_NAMESPACE => {
            format!("{boot}/{}", namespace.to_string_lossy())
        }
        _ => boot,
    }
}

/// Prefix of the id of a boot without an id from the kernel: the time of boot, rounded to ten minutes, follows.
const GUESSED: &str = "boot-";

/// Whether this is the kernel's own id of a boot, and not a guess.
pub fn names_a_boot(id: &str) -> bool {
    !id.starts_with(GUESSED)
}

/// The initial time namespace of Linux.
const FIRST_TIME_NAMESPACE: &str = "time:[4026531834]";

/// The id of this boot of this machine; it is read once.
pub fn boot_id() -> String {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(read_boot_id).clone()
}

#[cfg(not(target_os = "macos"))]
fn read_boot_id() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => guessed_boot_id(),
    }
}

/// macOS provides it only through a system call or this program.
#[cfg(target_os = "macos")]
fn read_boot_id() -> String {
    let asked = std::process::Command::new("/usr/sbin/sysctl").args(["-n", "kern.bootsessionuuid"]).output();
    match asked.ok().and_then(|said| String::from_utf8(said.stdout).ok()).map(|id| id.trim().to_owned()) {
        Some(id) if !id.is_empty() => id,
        _ => guessed_boot_id(),
    }
}

/// The time of boot to ten minutes.
fn guessed_boot_id() -> String {
    format!("{GUESSED}{}", (wall().0 - monotonic_ms()) / 600_000)
}
