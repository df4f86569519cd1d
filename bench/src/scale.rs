//! The same with a thousand tasks and a million, fresh and after many claims.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use toft::{ClaimQuery, Toft, verbs::ready};
use toft_bench::{fill, timing};

use crate::toft_bin;

/// What one store measures.
struct Figures {
    claim: Duration,
    ready: Duration,
    claim_process: Duration,
    ready_process: Duration,
}

pub(crate) fn run(sizes: &[usize], claims: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    println!(
        "\n| tasks | library claim | library ready | `toft claim` | `toft ready` |\n| --- | --- | --- | --- | --- |"
    );
    let mut largest = None;
    for size in sizes {
        let repo = dir.path().join(size.to_string());
        let toft = fill::fill(&repo, *size).expect("a full store");
        print(&size.to_string(), &measure(&toft, &repo));
        largest = Some((toft, repo));
    }
    let Some((toft, repo)) = largest else { return };
    let me = toft.agent("bench").register().expect("an agent");
    let mut done = 0;
    while done < claims {
        let jobs = me.claim_many(ClaimQuery::ready(), 100).expect("claims");
        if jobs.is_empty() {
            fill::add(&toft, 100_000.min(claims)).expect("more tasks");
        }
        for job in jobs {
            job.done("m").no_change("c").commit().expect("a finish");
            done += 1;
        }
    }
    fill::add(&toft, 2_000).expect("more tasks");
    print(&format!("the last, after {claims} claims"), &measure(&toft, &repo));
}

fn print(what: &str, figures: &Figures) {
    let Figures { claim, ready, claim_process, ready_process } = figures;
    println!("| {what} | {claim:.1?} | {ready:.1?} | {claim_process:.2?} | {ready_process:.2?} |");
}

fn measure(toft: &Toft, repo: &Path) -> Figures {
    let me = toft.agent("bench").register().expect("an agent");
    let mut claims = Vec::new();
    for _ in 0..300 {
        let start = Instant::now();
        let job = me.claim(ClaimQuery::ready()).expect("a claim").expect("a job");
        claims.push(start.elapsed());
        job.release("measured").expect("a release");
    }
    let mut looks = Vec::new();
    for _ in 0..300 {
        let start = Instant::now();
        let request = ready::Request { scope: toft.scope(), limit: 20, ..ready::Request::default() };
        assert!(!toft.perform(request).expect("a look").ready.is_empty());
        looks.push(start.elapsed());
    }
    let (bin, at) = (toft_bin(), repo.display().to_string());
    let (claim_process, ready_process) = timing::side_by_side(
        150,
        || timing::process(&bin, &["-C", &at, "claim"]),
        || timing::process(&bin, &["-C", &at, "ready"]),
    );
    for lease in held(toft) {
        let request = toft::verbs::finish::Request { id: Some(lease), ..Default::default() };
        let _ = toft.perform(request);
    }
    Figures { claim: timing::median(claims), ready: timing::median(looks), claim_process, ready_process }
}

/// Tasks the measured processes still hold, to be released.
fn held(toft: &Toft) -> Vec<String> {
    let request = toft::verbs::status::Request { scope: toft.scope(), limit: 10_000 };
    let status = toft.perform(request).expect("a status");
    status.working.into_iter().map(|row| row.task.id.to_string()).collect()
}
