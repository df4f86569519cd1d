//! A server over a database whose leader is replaced again and again: nothing acknowledged is lost, nothing is done
//! twice, and no task has two holders.
#![cfg(target_os = "linux")]

use toft_cluster::{Fault, Pair, Patroni};
use toft_stories::fleet_work::{History, require_one_holder_at_a_time, work_through};
use toft_stories::prelude::*;

/// How many workers claim and finish all the while: more than the server has connections.
const WORKERS: usize = 6;

/// What happens to the leader, in turn: every second time it is killed, in one of three ways.
const FAULTS: [Fault; 6] =
    [Fault::Machine, Fault::Switchover, Fault::Supervisor, Fault::Switchover, Fault::Server, Fault::Switchover];

#[test]
#[ignore = "long: Patroni"]
fn failovers_lose_nothing_that_workers_were_told() {
    if !toft_cluster::patroni_available() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "etcd, Patroni, HAProxy or PostgreSQL is not installed");
        eprintln!("skipped: etcd, Patroni, HAProxy or PostgreSQL is not installed");
        return;
    }
    let (begun, failovers) = (Instant::now(), sized(1, 20));
    let mut patroni = Patroni::start();
    let home = Home::new();
    let server = FleetServer::start(&home, &patroni.url(), &[]);
    let token = server.token(&home, "story", "admin");
    let ready = begun.elapsed();
    let mut took = Vec::new();
    let work = work_through(&server, &token, WORKERS, || {
        for fault in FAULTS.iter().cycle().take(failovers) {
            // They work for a while.
            thread::sleep(Duration::from_secs(2));
            took.push((fault, patroni.fail_over(*fault)));
            thread::sleep(Duration::from_secs(1));
            if took.len() < failovers {
                patroni.repair();
            }
        }
        thread::sleep(Duration::from_secs(1));
    });
    let history = History::of(&server, &token);
    let lost = history.require(&work, Instant::now());
    require_one_holder_at_a_time(&work);
    let store = patroni.url();
    home.toft_with(home.path(), &[("TOFT_STORE", &store)], &["doctor"]).ok();
    assert_eq!(history.len(), work.acknowledged.len(), "{lost} are lost");
    for (fault, time) in &took {
        eprintln!("{fault:?}: another member took writes after {time:.1?}");
    }
    eprintln!(
        "{failovers} failovers: {} operations acknowledged, none lost, none doubled, no task with two holders; the longest wait of a \
         client was {:.1?}; {:?}; servers ready after {ready:.1?}, all in {:.1?}",
        work.acknowledged.len(),
        work.longest_wait,
        work.retries,
        begun.elapsed()
    );
}

#[test]
#[ignore = "wide: a pair of servers"]
fn a_repeated_operation_is_not_answered_before_the_standby_has_it() {
    if !has_postgresql() {
        return;
    }
    let pair = Pair::start();
    let home = Home::new();
    let servers = [(); 2].map(|()| FleetServer::start(&home, &pair.url(), &[]));
    let token = servers[0].token(&home, "ana", "admin");
    let ask = |server: usize, seconds: &str, verb: &str, body: &str| {
        let url = format!("{}/v1/verbs/{verb}", servers[server].url);
        let authorization = format!("authorization: Bearer {token}");
        let args =
            ["-s", "-m", seconds, "-H", &authorization, "-d", body, "-o", "/dev/null", "-w", "%{http_code}", &url];
        let said = home.command(home.path(), "curl", &args).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let plan = r#"{"request":{"plan":{"title":"one","tasks":[{"name":"a"}]},"source":{"kind":"prompt","text":"x"}}}"#;
    assert_eq!(ask(0, "20", "flow.new", plan), "200");
    let claim = r#"{"op":{"id":"op_once","request":""},"request":{}}"#;
    pair.lose_standby();
    // It is done on one disk, and nobody is told.
    assert_ne!(ask(0, "2", "claim", claim), "200");
    let waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' limit 1";
    assert!(!pair.primary().psql(waiting).is_empty());
    // The primary restarts in place: what was done is visible now.
    assert!((0..100).any(|_| pair.primary().kill_a_backend()), "no session to kill");
    pair.primary().wait_until_ready();
    let receipts = "select count(*) from toft.receipts where op = 'op_once'";
    assert_eq!(pair.primary().psql(receipts), "1");
    assert_ne!(ask(1, "4", "claim", claim), "200", "a claim was confirmed that is on one disk only");
}
