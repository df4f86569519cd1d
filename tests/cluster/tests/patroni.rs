//! What servers under Patroni do for a test.

use std::time::Instant;

use toft_cluster::{Fault, Patroni};

#[test]
#[ignore = "wide: Patroni"]
fn keeps_what_was_committed_over_each_failover() {
    if !toft_cluster::patroni_available() {
        eprintln!("skipped: etcd, Patroni, HAProxy or PostgreSQL is not installed");
        return;
    }
    let start = Instant::now();
    let mut patroni = Patroni::start();
    println!("start: {:.1?}", start.elapsed());
    patroni.try_psql("create table kept (n int)").unwrap();
    let faults = [Fault::Switchover, Fault::Server, Fault::Supervisor, Fault::Machine];
    let rounds = std::env::var("ROUNDS").map_or(2, |rounds| rounds.parse().unwrap());
    for (n, fault) in faults.into_iter().cycle().take(rounds).enumerate() {
        patroni.try_psql(&format!("insert into kept values ({n})")).unwrap();
        let took = patroni.fail_over(fault);
        let start = Instant::now();
        assert_eq!(patroni.try_psql("select count(*) from kept").unwrap(), (n + 1).to_string());
        patroni.repair();
        println!("{fault:?}: {took:.1?}, repaired in {:.1?}", start.elapsed());
    }
}
