//! What a pair of servers does for a test.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use toft_cluster::Pair;

/// Runs SQL as toft would: on whichever of the two servers takes writes.
fn ask(url: &str, sql: &str) -> String {
    let output = Command::new("psql").args(["-XAtq", url, "-c", sql]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A session that commits row after row until its connection breaks, for a minute at most, and prints the number of
/// each row committed.
fn writer(url: &str) -> Child {
    let script = "select 'insert into kept default values returning n' from generate_series(1, 100000) \\gexec";
    let mut psql = Command::new("timeout");
    psql.args(["60", "psql", "-XAtq", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut writer = psql.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    writer
}

#[test]
#[ignore = "wide: a pair of servers"]
fn keeps_what_was_committed_over_each_fail_over() {
    if !toft_cluster::available() {
        eprintln!("skipped: no PostgreSQL server is installed");
        return;
    }
    let start = Instant::now();
    let mut pair = Pair::start();
    println!("start: {:?}", start.elapsed());
    let url = pair.url();
    ask(&url, "create table kept (n serial primary key)");
    let mut committed = BTreeSet::new();
    for _ in 0..std::env::var("ROUNDS").map_or(3, |rounds| rounds.parse().unwrap()) {
        let mut writer = writer(&url);
        let mut printed = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        // The kill comes amid the commits, however long the session takes to begin them.
        let before: Vec<_> = printed.by_ref().take(100).collect();
        assert_eq!(before.len(), 100);
        committed.extend(before);
        let (old, took) = (pair.primary().port(), pair.fail_over());
        assert_ne!(pair.primary().port(), old);
        committed.extend(printed);
        // This is how psql says that its connection broke.
        assert_eq!(writer.wait().unwrap().code(), Some(2));
        let rows = ask(&url, "select n from kept");
        let rows: BTreeSet<_> = rows.lines().map(str::to_owned).collect();
        assert_eq!(committed.difference(&rows).count(), 0);

        committed.insert(ask(&url, "insert into kept default values returning n"));
        let start = Instant::now();
        pair.rebuild();
        println!("fail-over: {took:?}, rebuild: {:?}, rows: {}", start.elapsed(), rows.len());
        assert_eq!(pair.url(), url);
        assert_eq!(pair.primary().psql("select sync_state from pg_stat_replication"), "sync");
    }
}

#[test]
#[ignore = "wide: a pair of servers"]
#[should_panic(expected = "no standby")]
fn does_not_fail_over_to_a_dead_server() {
    assert!(toft_cluster::available(), "no standby");
    let mut pair = Pair::start();
    pair.fail_over();
    pair.fail_over();
}
