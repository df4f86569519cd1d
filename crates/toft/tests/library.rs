//! The library as an embedder uses it.

use std::{thread, time::Duration};

use toft::{ClaimQuery, Config, Error, StoreLocation, Toft, flow::WorkflowPlan, refusal::Refusal};

fn open(dir: &tempfile::TempDir) -> Toft {
    let store = Some(StoreLocation::new_path(dir.path().join("demo.db")));
    Toft::with(Config { store, dir: Some(dir.path().to_owned()), ..Config::default() }).expect("a new store")
}

#[test]
fn a_worker_claims_until_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let toft = open(&dir);
    for n in 0..3 {
        toft.start_flow(&WorkflowPlan::single(&format!("job {n}"))).unwrap();
    }
    let me = toft.agent("builder-7").can("rust").register().unwrap();
    let mut done = Vec::new();
    while let Some(job) = me.claim(ClaimQuery::ready()).unwrap() {
        assert!(job.put("step", 1.into()).unwrap());
        assert!(!job.put("step", 1.into()).unwrap());
        assert_eq!(job.get("step").unwrap(), Some(1.into()));
        assert_eq!(job.get("other").unwrap(), None);
        done.push(job.task().spec.name.clone());
        job.done("built").no_change("abc").commit().unwrap();
    }
    // Made within one millisecond they may come in any order.
    done.sort();
    assert_eq!(done, ["job 0", "job 1", "job 2"]);
}

#[test]
fn done_without_evidence_is_refused_and_the_job_is_still_held() {
    let dir = tempfile::tempdir().unwrap();
    let toft = open(&dir);
    toft.start_flow(&WorkflowPlan::single("job")).unwrap();
    let me = toft.agent("builder").register().unwrap();
    let job = me.claim(ClaimQuery::ready()).unwrap().unwrap();
    let task = job.task().id.to_string();
    assert!(matches!(job.done("built").commit(), Err(Error::Refused(Refusal::NeedsEvidence))));
    assert!(matches!(me.claim(ClaimQuery::task(task)), Err(Error::Refused(Refusal::LeaseHeld { .. }))));
}

#[test]
fn a_waiting_claim_and_a_waiting_iterator_see_what_another_thread_does() {
    let dir = tempfile::tempdir().unwrap();
    let (waiting, writing) = (open(&dir), open(&dir));
    thread::scope(|scope| {
        let claimed = scope.spawn(|| {
            let me = waiting.agent("waiter").register().unwrap();
            me.claim(ClaimQuery::ready().wait(Duration::from_secs(20))).unwrap().map(|job| job.task().spec.name.clone())
        });
        thread::sleep(Duration::from_millis(50));
        writing.start_flow(&WorkflowPlan::single("late")).unwrap();
        assert_eq!(claimed.join().unwrap().as_deref(), Some("late"));
    });
    let verbs: Vec<_> =
        writing.events(0).patience(Duration::from_millis(50)).map(|event| event.unwrap().verb).collect();
    assert_eq!(verbs, ["agent.registered", "agent.registered", "flow.new", "claim"]);
}

#[test]
fn a_kept_job_outlives_its_ttl_and_says_stop_before_the_lease_can_end() {
    let dir = tempfile::tempdir().unwrap();
    let toft = open(&dir);
    toft.start_flow(&WorkflowPlan::single("job")).unwrap();
    toft.start_flow(&WorkflowPlan::single("another")).unwrap();
    let me = toft.agent("builder").register().unwrap();
    let ttl = Duration::from_millis(1_500);

    let job = me.claim(ClaimQuery::ready().ttl(ttl)).unwrap().unwrap();
    let kept = job.keep(Duration::from_millis(100));
    thread::sleep(2 * ttl);
    assert!(!kept.must_stop(), "{:?}", kept.why());
    job.done("built").evidence("abc").commit().unwrap();
    drop(kept);

    let job = me.claim(ClaimQuery::ready().ttl(ttl)).unwrap().unwrap();
    let claimed = std::time::Instant::now();
    // A store that cannot be reached: whoever keeps it has a connection of their own.
    std::fs::rename(dir.path().join("demo.db"), dir.path().join("away.db")).unwrap();
    std::fs::create_dir(dir.path().join("demo.db")).unwrap();
    let kept = job.keep(Duration::from_millis(100));
    while !kept.must_stop() {
        assert!(claimed.elapsed() < ttl, "the lease may be another's by now");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(kept.why().unwrap().contains("not renewed"), "{:?}", kept.why());
}
