//! Quick look.
#![expect(clippy::print_stdout, reason = "its output is its result")]
use std::{
    path::Path,
    time::{Duration, Instant},
};
use toft::Query;
use toft_bench::{bare, fill, timing};

fn main() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let n = 3000;
    let path = dir.path().join("a.db");
    let toft = fill::fill(&path, n * 4 + 4000).unwrap();
    let me = toft.agent("bench").register().unwrap();
    let connection = bare::open(&path, 1_000).unwrap();
    let (mut lib, mut bar) = (Duration::ZERO, Duration::ZERO);
    for round in 0..10u64 {
        let t = Instant::now();
        for _ in 0..n / 10 {
            let job = me.claim(Query::ready()).unwrap().unwrap();
            job.done("m").evidence("c").commit().unwrap();
        }
        lib += t.elapsed();
        let t = Instant::now();
        for i in 0..(n / 10) as u64 {
            let task = bare::claim(&connection, "-", round * 100_000 + i * 2).unwrap().unwrap();
            bare::finish(&connection, &task, "-", round * 100_000 + i * 2 + 1).unwrap();
        }
        bar += t.elapsed();
    }
    println!(
        "library {:?}/cycle bare {:?}/cycle ratio {:.2}",
        lib / n as u32,
        bar / n as u32,
        bar.as_secs_f64() / lib.as_secs_f64()
    );
    drop(connection);
    drop(toft);
    let bin = Path::new("target/release/toft");
    let bare_bin = Path::new("target/release/bare");
    let p = path.to_str().unwrap();
    let (a, b) = timing::side_by_side(
        200,
        || timing::process(bin, &["--store", p, "claim"]),
        || timing::process(bare_bin, &["claim", p, "-"]),
    );
    println!("claim lone: toft {a:?} bare {b:?} ratio {:.2}", a.as_secs_f64() / b.as_secs_f64());
    let (a, b) = timing::side_by_side(
        300,
        || timing::process(bin, &["--store", p, "ready"]),
        || timing::process(bare_bin, &["ready", p, "-"]),
    );
    println!("ready lone: toft {a:?} bare {b:?} ratio {:.2}", a.as_secs_f64() / b.as_secs_f64());
    let keep = bare::open(&path, 1_000).unwrap();
    bare::ready(&keep, "-", 1).unwrap();
    let (a, b) = timing::side_by_side(
        200,
        || timing::process(bin, &["--store", p, "claim"]),
        || timing::process(bare_bin, &["claim", p, "-"]),
    );
    println!("claim held: toft {a:?} bare {b:?} ratio {:.2}", a.as_secs_f64() / b.as_secs_f64());
    let (a, b) = timing::side_by_side(
        300,
        || timing::process(bin, &["--store", p, "ready"]),
        || timing::process(bare_bin, &["ready", p, "-"]),
    );
    println!("ready held: toft {a:?} bare {b:?} ratio {:.2}", a.as_secs_f64() / b.as_secs_f64());
}
