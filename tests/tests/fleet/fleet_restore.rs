//! A server whose database is lost with its disk, and restored from a backup and the archive: everything that was
//! acknowledged before the archive's end is there again.
#![cfg(target_os = "linux")]

use toft_cluster::BackupRepository;
use toft_stories::fleet_work::{History, RetryingClient, Work, require_one_holder_at_a_time, work_through};
use toft_stories::prelude::*;

const WORKERS: usize = 4;

#[test]
#[ignore = "long: pgBackRest"]
fn a_lost_database_is_restored_to_the_end_of_its_archive() {
    if !toft_cluster::backup_available() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "pgBackRest or PostgreSQL is not installed");
        eprintln!("skipped: pgBackRest or PostgreSQL is not installed");
        return;
    }
    let (begun, phase) = (Instant::now(), Duration::from_secs(sized(1, 30) as u64));
    let mut backups = BackupRepository::start();
    let (home, store) = (Home::new(), backups.cluster().url());
    let server = FleetServer::start(&home, &store, &[]);
    let token = server.token(&home, "story", "admin");

    let (mut backup_took, mut archived) = (Duration::ZERO, begun);
    let mut work = work_through(&server, &token, WORKERS, || {
        thread::sleep(phase);
        let start = Instant::now();
        backups.back_up();
        backup_took = start.elapsed();
        thread::sleep(phase);
    });
    let mut client = RetryingClient::new(&server, &token, Duration::from_secs(60));
    let kept = work.claim(&mut client, "kept").expect("a task is ready");
    let mut work = work.and(work_through(&server, &token, WORKERS, || {
        thread::sleep(phase);
        archived = Instant::now();
        backups.archive();
        thread::sleep(phase);
    }));
    let lost = work.claim(&mut client, "lost").expect("a task is ready");

    drop(server);
    backups.cluster().destroy();
    let down = Instant::now();
    backups.restore();
    let server = FleetServer::start(&home, &store, &[]);
    let mut client = RetryingClient::new(&server, &token, Duration::from_secs(60));
    let history = History::of(&server, &token);
    let restore_took = down.elapsed();

    let gone = history.require(&work, archived);
    require_one_holder_at_a_time(&work);
    home.toft_with(home.path(), &[("TOFT_STORE", &store)], &["doctor"]).ok();
    // A holder from before goes on. One whose claim was lost is refused, also if nobody holds the task now; the task itself is
    // unknown if it was planned after the archive's end, too.
    let mut since = Work::default();
    assert_eq!(since.end(&mut client, "kept", &kept, true).status, 200);
    let mut since = since.and(work_through(&server, &token, WORKERS, || thread::sleep(phase)));
    let refused = since.end(&mut client, "lost", &lost, true);
    assert!([404, 409].contains(&refused.status), "{} {}", refused.status, refused.said);
    assert!(History::of(&server, &token).has_all(&since));
    require_one_holder_at_a_time(&since);
    home.toft_with(home.path(), &[("TOFT_STORE", &store)], &["doctor"]).ok();

    eprintln!(
        "{} operations acknowledged, {} of them restored, {gone} came after the archive's end and are lost, {} done since; \
         full backup under load in {backup_took:.1?}, restored and served again in {restore_took:.1?}, all in {:.1} minutes",
        work.acknowledged.len(),
        work.acknowledged.len() - gone,
        since.acknowledged.len(),
        begun.elapsed().as_secs_f64() / 60.0,
    );
}
