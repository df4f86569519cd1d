//! Medians of things timed in turn, so that a noisy machine disturbs both alike.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The middle one.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The one that `share` of all are below.
pub fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}

/// Runs a program to its end and says how long that took. Panics if it fails.
pub fn process(program: &Path, args: &[&str]) -> Duration {
    let start = Instant::now();
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    let took = start.elapsed();
    assert!(status.success(), "{} {args:?} failed: {status}", program.display());
    took
}

/// Medians of two things timed alternately.
pub fn side_by_side(
    rounds: usize,
    mut a: impl FnMut() -> Duration,
    mut b: impl FnMut() -> Duration,
) -> (Duration, Duration) {
    let (mut times_a, mut times_b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        times_a.push(a());
        times_b.push(b());
    }
    (median(times_a), median(times_b))
}
