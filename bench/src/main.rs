//! Prints the table of measurements: toft beside the bare engine, in one run, as ratios.

mod agents;
mod fair;
mod filters;
mod fleet;
mod ledger;
mod scale;
mod served;
mod server;
mod share;
mod spaces;
mod week;
mod workspaces;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use toft::ClaimQuery;
use toft_bench::{bare, fill, timing};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["worker", dir, name, seconds] => return fair::worker(Path::new(dir), name, seconds.parse().expect("seconds")),
        ["server", parts @ ..] => return server::run(parts),
        ["ledger"] => return ledger::run(&[1_000, 10_000]),
        ["ledger", "long"] => return ledger::run(&[1_000, 10_000, 100_000]),
        ["filters"] => return filters::run(&[1_000, 100_000]),
        ["filters", "long"] => return filters::run(&[1_000, 100_000, 1_000_000]),
        ["agents"] => return agents::run(200),
        ["agents", "long"] => return agents::run(1_000),
        ["fleet"] => return fleet::run(&[(10, 100)]),
        ["fleet", "long"] => return fleet::run(&[(10, 100), (100, 10), (100, 100), (300, 33)]),
        ["spaces"] => return spaces::run(&[(10, 10), (100, 10)]),
        ["spaces", "long"] => return spaces::run(&[(1, 1_000), (10, 100), (100, 10), (300, 10)]),
        ["share"] => return share::run(&[1_000]),
        ["share", "long"] => return share::run(&[100, 1_000, 10_000]),
        ["week"] => return week::run(7, 1_000, 7_150),
        ["workspaces"] => return workspaces::run(&[5_000]),
        ["workspaces", "long"] => return workspaces::run(&[5_000, 50_000]),
        [] | ["long"] | ["quick"] => {}
        other => {
            panic!(
                "toft-bench [quick|long|filters [long]|ledger [long]|workspaces [long]|agents [long]|share [long]|fleet [long]|spaces [long]|week|server [long] [bare|served|batches|renewals|sizes|filters|idle|many]...], not {other:?}"
            )
        }
    }
    let long = words == ["long"];
    println!("| what | toft | bare | ratio | aim |\n| --- | --- | --- | --- | --- |");
    cycles();
    processes();
    if words == ["quick"] {
        return;
    }
    scale::run(
        if long { &[1_000, 100_000, 1_000_000] } else { &[1_000, 100_000] },
        if long { 1_000_000 } else { 20_000 },
    );
    filters::run(if long { &[1_000, 100_000, 1_000_000] } else { &[1_000, 100_000] });
    fair::run(&[50, 150], if long { 10 } else { 4 });
}

/// The installed binary under test.
fn toft_bin() -> PathBuf {
    std::env::var_os("TOFT_BIN").map_or_else(|| beside("toft"), PathBuf::from)
}

/// A program built beside this one.
fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("this program has a path").with_file_name(name)
}

fn row(what: &str, toft: Duration, bare: Duration, ratio: f64, aim: &str) {
    println!("| {what} | {toft:.2?} | {bare:.2?} | {ratio:.2} | {aim} |");
}

/// Claim and finish through the library, beside the same rows written bare, in turn on one file.
fn cycles() {
    const ROUNDS: u64 = 20;
    const EACH: u64 = 100;
    let dir = tempfile::tempdir().expect("a directory");
    let toft = fill::fill(&dir.path().join("r"), (ROUNDS * EACH * 2) as usize + 1_000).expect("a full store");
    let me = toft.agent("bench").register().expect("an agent");
    let connection = bare::open(toft.located().store.file().expect("a file"), 1_000).expect("a connection");
    let lane = fill::lane(&toft);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..EACH {
            let job = me.claim(ClaimQuery::ready()).expect("a claim").expect("a job");
            job.done("m").no_change("c").commit().expect("a finish");
        }
        ours.push(start.elapsed() / EACH as u32);
        let start = Instant::now();
        for n in 0..EACH {
            let n = (round * EACH + n) * 2;
            let task = bare::claim(&connection, &lane, n).expect("a claim").expect("a task");
            bare::finish(&connection, &task, &lane, n + 1).expect("a finish");
        }
        theirs.push(start.elapsed() / EACH as u32);
    }
    let (ours, theirs) = (timing::median(ours), timing::median(theirs));
    row("library: claim + finish, rate", ours, theirs, theirs.as_secs_f64() / ours.as_secs_f64(), "≥ 0.8");
}

/// Whole processes, alone and while another keeps the store open.
fn processes() {
    let dir = tempfile::tempdir().expect("a directory");
    let repo = dir.path().join("r");
    let toft = fill::fill(&repo, 3_000).expect("a full store");
    let lane = fill::lane(&toft);
    let store = toft.located().store.to_string();
    drop(toft);
    let (bin, bare_bin, at) = (toft_bin(), beside("bare"), repo.display().to_string());
    let both = |what: &str, verb: &str, aim: &str| {
        let (ours, theirs) = timing::side_by_side(
            300,
            || timing::process(&bin, &["-C", &at, verb]),
            || timing::process(&bare_bin, &[verb, &store, &lane]),
        );
        row(what, ours, theirs, ours.as_secs_f64() / theirs.as_secs_f64(), aim);
    };
    both("process: `toft ready`, alone", "ready", "≤ 1.5");
    both("process: `toft claim`, alone", "claim", "≤ 2");
    let keep = bare::open(Path::new(&store), 1_000).expect("a connection");
    bare::ready(&keep, &lane, 1).expect("an answer");
    both("process: `toft ready`, store held open", "ready", "≤ 1.5");
    both("process: `toft claim`, store held open", "claim", "≤ 2");
}
