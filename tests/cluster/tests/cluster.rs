//! What a single server does for a test.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use toft_cluster::{Bouncer, Cluster};

fn missing() -> bool {
    let missing = !toft_cluster::available();
    if missing {
        eprintln!("skipped: no PostgreSQL server is installed");
    }
    missing
}

fn timed<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    println!("{what}: {:?}", start.elapsed());
    result
}

/// The same address for the one who may do everything.
fn as_superuser(url: &str) -> String {
    url.replace("toft@", "postgres@")
}

fn soon(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "too late");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn starts_with_settings_and_leaves_nothing_behind() {
    if missing() {
        return;
    }
    let settings = [("max_connections", "50"), ("application_name", "it's")];
    let cluster = timed("start", || Cluster::start_with(&settings));
    assert_eq!(cluster.psql("select 1, 'two'"), "1|two");
    assert_eq!(cluster.psql("select current_database()"), "toft");
    assert_eq!(cluster.psql("show fsync"), "on");
    assert_eq!(cluster.psql("show server_encoding"), "UTF8");
    assert_eq!(cluster.psql("show max_connections"), "50");
    assert!(cluster.try_psql("select nonsense").is_err_and(|error| error.contains("nonsense")));

    let data = cluster.psql("show data_directory");
    let address = ("127.0.0.1", cluster.port());
    assert!(Path::new(&data).exists() && TcpStream::connect(address).is_ok());
    timed("stop", || drop(cluster));
    assert!(!Path::new(&data).parent().unwrap().exists());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn keeps_what_was_committed_over_a_crash() {
    if missing() {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.psql("create table kept (n int)");
    for n in 1..=3 {
        cluster.psql(&format!("insert into kept values ({n})"));
        let mut session = Command::new("psql")
            .args([
                "-Xq",
                &as_superuser(&cluster.url()),
                "-c",
                "insert into kept values (-1)",
                "-c",
                "select pg_sleep(60)",
            ])
            .args(["--single-transaction"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        soon(|| cluster.psql("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == "1");
        let pids = cluster.psql("select pid from pg_stat_activity");
        timed("kill", || cluster.kill_server());
        assert!(!session.wait().unwrap().success());
        assert!(pids.lines().all(|pid| !Path::new("/proc").join(pid).join("exe").exists()));
        assert!(cluster.try_psql("select 1").is_err());
        cluster.kill_server();
        timed("restart", || cluster.restart());
        assert_eq!(cluster.psql("select count(*) from kept"), n.to_string());
    }
    cluster.restart();
    assert_eq!(cluster.psql("select count(*) from kept"), "3");
}

#[test]
fn kills_one_session() {
    if missing() {
        return;
    }
    let cluster = Cluster::start();
    assert!(!cluster.kill_a_backend());
    let mut session = Command::new("psql")
        .args(["-Xq", &as_superuser(&cluster.url()), "-c", "select pg_sleep(60)"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    soon(|| cluster.kill_a_backend());
    assert!(!session.wait().unwrap().success());
    soon(|| cluster.try_psql("select 1").is_ok());
    cluster.kill_server();
    assert!(!cluster.kill_a_backend());
}

#[test]
fn servers_do_not_disturb_one_another() {
    if missing() {
        return;
    }
    let (one, two) = (Cluster::start(), Cluster::start());
    one.kill_server();
    assert_eq!(two.psql("select 1"), "1");
    drop(one);
    assert_eq!(two.psql("select 1"), "1");
}

#[test]
#[should_panic(expected = "no_such_setting")]
fn shows_the_log_when_it_cannot_start() {
    assert!(!missing(), "no_such_setting");
    let _ = Cluster::start_with(&[("no_such_setting", "1")]);
}

#[test]
fn bouncer_passes_queries() {
    if missing() || !toft_cluster::bouncer_available() {
        return;
    }
    let cluster = Cluster::start();
    let bouncer = timed("bouncer", || Bouncer::start(&cluster));
    let ask = |sql| Command::new("psql").args(["-XAtq", &bouncer.url(), "-c", sql]).output().unwrap();
    assert_eq!(ask("select 1").stdout, b"1\n");

    let port = bouncer.url().split(&[':', '/']).nth(4).unwrap().parse().unwrap();
    let clients: Vec<_> = (0..500).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert_eq!(ask("select 1").stdout, b"1\n");
    drop(clients);
    timed("bouncer stop", || drop(bouncer));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert_eq!(cluster.psql("select 1"), "1");
}
