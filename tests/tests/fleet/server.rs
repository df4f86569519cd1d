//! A database that is killed, and one whose standby takes over: nothing acknowledged is lost, nothing is done twice. And
//! what a database is asked besides: proof of who it is.

use toft_cluster::Pair;
use toft_stories::fleet_work::{History, Work, require_one_holder_at_a_time, work_through};
use toft_stories::prelude::*;

/// How many workers claim and finish all the while.
const WORKERS: usize = 6;

/// What workers of a server over this store were told while `trouble` was made: each operation is in history once, and
/// no task had two holders.
fn work_in_trouble(store: &str, trouble: impl FnOnce()) -> Work {
    let home = Home::new();
    let server = FleetServer::start(&home, store, &["--hold-from", "0"]);
    let token = server.token(&home, "story", "admin");
    let work = work_through(&server, &token, WORKERS, trouble);
    History::of(&server, &token).require(&work, Instant::now());
    require_one_holder_at_a_time(&work);
    home.toft_with(home.path(), &[("TOFT_STORE", store)], &["doctor"]).ok();
    work
}

#[test]
fn a_server_killed_again_and_again_loses_and_doubles_nothing() {
    let Some(mut cluster) = postgresql() else { return };
    let kills = sized(4, 50);
    let (mut backends, mut servers) = (0, 0);
    let work = work_in_trouble(&new_store_on(&cluster.url()), || {
        for kill in 0..kills {
            // They work for a while.
            thread::sleep(Duration::from_millis(700 + 37 * (kill as u64 % 9)));
            if kill % 3 == 2 {
                cluster.kill_server();
                thread::sleep(Duration::from_millis(200));
                cluster.restart();
                servers += 1;
            } else {
                backends += usize::from(cluster.kill_a_backend());
                cluster.wait_until_ready();
            }
        }
        thread::sleep(Duration::from_secs(1));
    });
    let (told, retries) = (work.acknowledged.len(), work.retries);
    assert!(servers > 0 && backends > 0, "nothing was killed");
    eprintln!("{servers} kills of the database, {backends} of a backend: {told} operations acknowledged; {retries:?}");
}

#[test]
#[ignore = "wide: a pair of servers"]
fn a_standby_takes_over_and_nothing_acknowledged_is_lost_or_doubled() {
    if !has_postgresql() {
        return;
    }
    let rounds = sized(2, 20);
    let mut pair = Pair::start();
    let mut promoted = Vec::new();
    let work = work_in_trouble(&new_store_on(&pair.url()), || {
        for _ in 0..rounds {
            thread::sleep(Duration::from_millis(1_200));
            promoted.push(pair.fail_over());
            thread::sleep(Duration::from_millis(800));
            pair.rebuild();
        }
        thread::sleep(Duration::from_secs(1));
    });
    let (told, waited) = (work.acknowledged.len(), work.longest_wait);
    eprintln!(
        "{rounds} failovers, promoted after {promoted:.2?}: {told} operations acknowledged; longest wait {waited:.1?}"
    );
}

/// An authority, and a certificate for this machine that it signed.
fn certificates(home: &Home) -> [String; 3] {
    let dir = home.path();
    let path = |name: &str| dir.join(name).display().to_string();
    std::fs::write(dir.join("names"), "subjectAltName = DNS:localhost, IP:127.0.0.1\n").unwrap();
    let request = ["req", "-nodes", "-newkey", "rsa:2048", "-subj", "/CN=localhost", "-keyout", "key.pem"];
    let authority = ["req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=yard", "-keyout"];
    for name in ["ca", "other"] {
        let (key, cert) = (format!("{name}-key.pem"), format!("{name}.pem"));
        home.run(dir, "openssl", &[&authority[..], &[&key, "-out", &cert]].concat());
    }
    home.run(dir, "openssl", &[&request[..], &["-out", "request.pem"]].concat());
    let sign = ["x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"];
    home.run(dir, "openssl", &[&sign[..], &["-days", "2", "-extfile", "names", "-out", "cert.pem"]].concat());
    [path("cert.pem"), path("key.pem"), path("ca.pem")]
}

#[test]
fn a_server_proves_who_it_is_or_is_not_spoken_to() {
    if !has_postgresql() {
        return;
    }
    let mut home = Home::new();
    let [cert, key, authority] = certificates(&home);
    // The server's user must be able to read its key, and nobody else may.
    home.run(home.path(), "chmod", &["0755", "."]);
    home.run(home.path(), "chmod", &["0600", &key]);
    if nix::unistd::Uid::effective().is_root() {
        home.run(home.path(), "chown", &["postgres", &key]);
    }
    let cluster = Cluster::start_with(&[("ssl", "on"), ("ssl_cert_file", &cert), ("ssl_key_file", &key)]);
    let url = cluster.url().replace("127.0.0.1", "localhost");
    home.use_store(&format!("{url}?sslmode=verify-full&sslrootcert={authority}"));
    let repo = home.git("api");
    home.toft(&repo, &["token", "create", "ana", "--role", "admin"]).ok();
    assert!(home.toft(&repo, &["token", "list"]).ok().contains("ana"));
    let stranger = format!("{url}?sslmode=require&sslrootcert={}", home.path().join("other.pem").display());
    let start = Instant::now();
    assert!(home.toft(&repo, &["--store", &stranger, "token", "list"]).fails(7).contains("certificate"));
    assert!(start.elapsed() < Duration::from_secs(5), "a stranger is not waited for");
}
