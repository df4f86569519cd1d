//! The fleet, simulated: thousands of seeds, every one the same each time.

use std::sync::atomic::{AtomicU64, Ordering};

use toft_stories::prelude::*;
use toft_stories::simulation::{Bug, Report, play};

/// Plays seeds side by side; gives what broke first, by seed, and what happened in all of them.
fn play_all(seeds: u64, bug: Option<Bug>) -> (BTreeMap<u64, String>, Report) {
    let next = AtomicU64::new(0);
    let parts: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
            .map(|_| {
                scope.spawn(|| {
                    let (mut broken, mut sum) = (BTreeMap::new(), Report::default());
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds || bug.is_some() && !broken.is_empty() {
                            return (broken, sum);
                        }
                        match play(seed, bug) {
                            Ok(report) => add(&mut sum, report),
                            Err(story) => drop(broken.insert(seed, story)),
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let (mut broken, mut sum) = (BTreeMap::new(), Report::default());
    for (part, report) in parts {
        broken.extend(part);
        add(&mut sum, report);
    }
    (broken, sum)
}

fn add(sum: &mut Report, report: Report) {
    sum.calls += report.calls;
    sum.acknowledged += report.acknowledged;
    sum.ended_after = sum.ended_after.max(report.ended_after);
    for (what, times) in report.nemeses {
        *sum.nemeses.entry(what).or_default() += times;
    }
}

/// `TOFT_SEED=17` plays one seed again and tells its story.
#[test]
fn a_fleet_under_every_nemesis_never_doubles_loses_or_strands_anything() {
    if let Some(seed) = std::env::var("TOFT_SEED").ok().and_then(|seed| seed.parse().ok()) {
        println!("{:#?}", play(seed, None).unwrap_or_else(|story| panic!("seed {seed}: {story}")));
        return;
    }
    let seeds = sized(150, 10_000) as u64;
    let (broken, sum) = play_all(seeds, None);
    println!("{seeds} seeds: {sum:?}");
    if let Some((seed, story)) = broken.first_key_value() {
        panic!("{} of {seeds} seeds broke; seed {seed}: {story}", broken.len());
    }
    assert!(sum.nemeses.len() == 9 && sum.acknowledged > seeds * 5, "it was a storm: {sum:?}");
}

#[test]
#[ignore = "wide: it judges the simulation, not toft"]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let (broken, _) = play_all(300, Some(bug));
        let Some((seed, story)) = broken.first_key_value() else { panic!("{bug:?} was not found in 300 seeds") };
        println!("{bug:?}: seed {seed}: {}", story.lines().next().unwrap_or_default());
        assert_eq!(play(*seed, Some(bug)).err().as_ref(), Some(story), "a seed plays the same again");
    }
}
