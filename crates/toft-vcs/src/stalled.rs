//! Telling a program that waits for something that does not come, such as a pipe where it expects a file, from one that
//! works. Only Linux tells; elsewhere the time limit does.

use std::{
    fs,
    time::{Duration, Instant},
};

/// A program is stalled when none of its threads ran for so long, and all of them sleep.
const STALLED: Duration = Duration::from_secs(5);
/// Programs below programs are looked at so far down.
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

    /// Whether it waits for something that does not come. To be asked about every second.
    pub(crate) fn is_stalled(&mut self) -> bool {
        let runs = asleep(self.pid, 0);
        if runs.is_none() || runs != self.runs {
            self.runs = runs;
            self.since = Instant::now();
        }
        self.runs.is_some() && self.since.elapsed() >= STALLED
    }
}

/// How often a program and those below it ran so far; nothing if one of them runs now, or if it cannot be told.
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
