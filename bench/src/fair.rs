//! Many processes writing at once: how much the slowest gets done beside the median, and how long one waits.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use toft::ClaimQuery;
use toft_bench::{fill, timing};

use crate::beside;

/// One worker: claim and finish until the time is up; prints how often, and each latency's p50 and p99 in µs.
pub(crate) fn worker(dir: &Path, name: &str, seconds: u64) {
    let toft = fill::open(dir, name).expect("a store");
    let me = toft.agent(name).register().expect("an agent");
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut waits = Vec::new();
    while Instant::now() < until {
        let start = Instant::now();
        let Some(job) = me.claim(ClaimQuery::ready()).expect("a claim") else { break };
        waits.push(start.elapsed());
        let start = Instant::now();
        job.done("m").no_change("c").commit().expect("a finish");
        waits.push(start.elapsed());
    }
    let words: Vec<_> = waits.iter().map(|wait| wait.as_micros().to_string()).collect();
    println!("{}", words.join(" "));
}

pub(crate) fn run(sizes: &[usize], seconds: u64) {
    println!("\n| processes | engine | operations/s | slowest / median worker | p50 | p99 | p99 / p50 | longest |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for size in sizes {
        let dir = tempfile::tempdir().expect("a directory");
        let repo = dir.path().join("r");
        let toft = fill::fill(&repo, 8_000 * seconds as usize).expect("a full store");
        let (store, lane) = (toft.located().store.to_string(), fill::lane(&toft));
        drop(toft);
        let me = std::env::current_exe().expect("this program has a path");
        let (at, seconds) = (repo.display().to_string(), seconds.to_string());
        let counts = crowd(*size, |n| {
            let mut command = Command::new(&me);
            command.args(["worker", &at, &format!("w{n}"), &seconds]);
            command
        });
        let waits: Vec<_> = counts.iter().flatten().copied().map(Duration::from_micros).collect();
        let (p50, p99) = (timing::quantile(&waits, 0.5), timing::quantile(&waits, 0.99));
        let longest = waits.iter().max().copied().unwrap_or_default();
        let (rate, share) = shares(&counts.iter().map(Vec::len).collect::<Vec<_>>(), &seconds);
        let steep = p99.as_secs_f64() / p50.as_secs_f64();
        println!("| {size} | toft | {rate:.0} | {share:.2} | {p50:.1?} | {p99:.1?} | {steep:.1} | {longest:.1?} |");
        let counts = crowd(*size, |_| {
            let mut command = Command::new(beside("bare"));
            command.args(["worker", &store, &lane, &seconds]);
            command
        });
        let (rate, share) = shares(&counts.iter().map(|words| words[0] as usize * 2).collect::<Vec<_>>(), &seconds);
        println!("| {size} | bare | {rate:.0} | {share:.2} | | | | |");
    }
}

/// Starts `size` processes and gives the numbers each printed.
fn crowd(size: usize, command: impl Fn(usize) -> Command) -> Vec<Vec<u64>> {
    let children: Vec<_> =
        (0..size).map(|n| command(n).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a worker")).collect();
    children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().expect("a worker's end");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let words: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            if words.is_empty() { vec![0] } else { words }
        })
        .collect()
}

/// Operations a second, and the slowest worker's share of the median's.
fn shares(counts: &[usize], seconds: &str) -> (f64, f64) {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    let total: usize = counts.iter().sum();
    let median = counts[counts.len() / 2].max(1);
    (total as f64 / seconds.parse::<f64>().unwrap_or(1.0), counts[0] as f64 / median as f64)
}
