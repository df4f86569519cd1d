//! Backoff between clones that sync at the same time, so that each succeeds about as often as the others.
//!
//! Only the remote decides which push is first. A clone that lost a race retries almost immediately, the sooner the
//! more often it lost; one that succeeded and saw other active clones waits some rounds.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Maximum wait.
const MOST: Duration = Duration::from_secs(15);
/// Other clones that pushed within this time are active.
const LATELY: Duration = Duration::from_secs(2);
/// Number of rounds that a clone waits after it succeeded among others.
const OTHERS: f64 = 3.0;
/// Other clones are active if they pushed within this many of our own rounds.
const ROUNDS: u32 = 8;

/// The last successful sync.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Last {
    /// When it was, in milliseconds since 1970.
    at: u64,
    /// Duration of one round, in milliseconds.
    round: u64,
    /// Other clones pushed in the meantime.
    busy: bool,
}

/// The backoff of one sync.
pub(super) struct Pace {
    path: PathBuf,
    last: Last,
    begun: Instant,
    lost: u32,
}

impl Pace {
    /// Begins a sync; a `patient` one waits first if other clones are active.
    pub(super) fn begin(path: PathBuf, patient: bool) -> Self {
        let last: Last =
            fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        if patient && last.busy {
            // Each of the others needs about a round from its last look to its own turn.
            let wait = Duration::from_millis(last.round).mul_f64(OTHERS + dice()).min(MOST);
            thread::sleep(wait.saturating_sub(since(last.at)));
        }
        Self { path, last, begun: Instant::now(), lost: 0 }
    }

    /// Waits after a lost race.
    pub(super) fn lost(&mut self) {
        self.lost += 1;
        // Those who lost together do not come back together.
        thread::sleep((self.begun.elapsed() / 4 / self.lost).mul_f64(dice()));
        self.begun = Instant::now();
    }

    /// Records a successful sync; `moved` says whether other clones had pushed since the last one.
    pub(super) fn won(&self, moved: bool) {
        let round = self.begun.elapsed();
        let lately = since(self.last.at) < round.saturating_mul(ROUNDS).max(LATELY);
        let busy = self.lost > 0 || moved && lately;
        let round = u64::try_from(round.as_millis()).unwrap_or(0);
        let last = Last { at: now(), round, busy };
        // Without it, the next sync waits for nobody.
        let _ = toft_store::private::write(&self.path, serde_json::to_string(&last).unwrap_or_default());
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

fn since(at: u64) -> Duration {
    Duration::from_millis(now().saturating_sub(at))
}

/// A random number from 0 to 1.
fn dice() -> f64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let mixed = (u64::from(nanos) ^ u64::from(std::process::id()) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    f64::from(u32::try_from(mixed >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
