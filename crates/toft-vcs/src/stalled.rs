//! Detects a program that waits for something that never happens, such as data from a pipe where it expects a file.
//! Works on Linux only; elsewhere the time limit applies.

use std::{
    fs,
    time::{Duration, Instant},
};

/// A program is stalled if all its threads have slept for this long.
const STALLED: Duration = Duration::from_secs(5);
/// Maximum depth of descendants that are checked.
const DEEPEST: usize = 8;

/// Watches one program.
pub(crate) struct Watch {
    pid: u32,
    runs: Option<u64>,
    since: Instant,
}

impl Watch {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid, runs: None, since: Instant::now() }
    }

    /// Whether the program is stalled. Call this about once a second.
    pub(crate) fn is_stalled(&mut self) -> bool {
        let runs = asleep(self.pid, 0);
        if runs.is_none() || runs != self.runs {
            self.runs = runs;
            self.since = Instant::now();
        }
        self.runs.is_some() && self.since.elapsed() >= STALLED
    }
}

/// The number of context switches of a program and its descendants so far; `None` if one of them is running, or if that
/// is unknown.
fn asleep(pid: u32, depth: usize) -> Option<u64> {
    let mut runs = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if !field("State:")?.starts_with('S') {
            return None;
        }
        for kind in ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"] {
            runs += field(kind)?.parse::<u64>().ok()?;
        }
        let below = fs::read_to_string(task.path().join("children")).ok()?;
        for child in below.split_ascii_whitespace() {
            if depth == DEEPEST {
                return None;
            }
            runs += asleep(child.parse().ok()?, depth + 1)?;
        }
    }
    Some(runs)
}
