//! What a single server does for a test.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

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
