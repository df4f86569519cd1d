//! A server that is killed, and one whose standby takes over: nothing acknowledged is lost, nothing is done twice. And
//! what a server is asked besides: proof of who it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use toft_cluster::{Cluster, Pair};
use toft_stories::{Home, new_store_on, sized};

/// How many agents work all the while.
const WORKERS: usize = 6;

/// What one process was told: the verb, the task, the fence's number.
type Told = (&'static str, String, u64);

/// Whether a server can be had; CI has one.
fn no_server() -> bool {
    let missing = !toft_cluster::available();
    assert!(!(missing && std::env::var_os("TOFT_TEST_ALL").is_some()), "PostgreSQL is not installed");
    missing
}

/// A home with one repository and plenty of work in a store on a server.
fn busy_home(server: &str, tasks: usize) -> Home {
    let mut home = Home::new();
    home.behind_a_server(Some(&new_store_on(server)));
    let repo = home.repo("api");
    let plan = home.path().join("plan.json");
    let tasks: Vec<_> = (0..tasks).map(|n| serde_json::json!({ "name": format!("t{n}") })).collect();
    std::fs::write(&plan, serde_json::json!({ "title": "load", "tasks": tasks }).to_string()).unwrap();
    home.toft(&repo, &["flow", "new", "--file", plan.to_str().unwrap()]).ok();
    home
}

/// What was told while agents worked and `trouble` was made: acknowledged operations with when they were, and how many
/// commands failed.
struct Work {
    told: Vec<(Told, Instant)>,
    failed: usize,
}

fn work_through(home: &Home, trouble: impl FnOnce()) -> Work {
    let repo = home.path().join("api");
    let (told, failed, over) = (Mutex::new(Vec::new()), Mutex::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (told, failed, over, repo) = (&told, &failed, &over, &repo);
            scope.spawn(move || {
                let agent = format!("agent-{worker}");
                while !over.load(Ordering::SeqCst) {
                    let said = home.toft(repo, &["claim", "--as", &agent, "--json"]);
                    if said.code != 0 {
                        assert!(matches!(said.code, 1 | 7), "{said:?}");
                        *failed.lock().unwrap() += 1;
                        continue;
                    }
                    let claim = said.data();
                    let task = claim["task"]["id"].as_str().unwrap().to_owned();
                    let fence = claim["lease"]["fence"].as_u64().unwrap();
                    told.lock().unwrap().push((("claim", task.clone(), fence), Instant::now()));
                    let token = claim["lease"]["token"].as_str().unwrap();
                    let args = ["finish", &task, "--fence", token, "--no-change", "x", "--as", &agent, "--json"];
                    let said = home.toft(repo, &args);
                    if said.code == 0 {
                        told.lock().unwrap().push((("task.done", task, fence), Instant::now()));
                    } else {
                        // Its fence is live: a refusal would be a lost write.
                        assert!(matches!(said.code, 1 | 7), "{said:?}");
                        *failed.lock().unwrap() += 1;
                    }
                }
            });
        }
        trouble();
        over.store(true, Ordering::SeqCst);
    });
    Work { told: told.into_inner().unwrap(), failed: failed.into_inner().unwrap() }
}

/// Every acknowledged operation is in history once, history has no gap, and nothing is in it twice.
fn check(home: &Home, work: &Work) {
    let mut history: BTreeMap<(String, String, u64), usize> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page =
            home.toft(home.path(), &["history", "--after", &after.to_string(), "--limit", "5000", "--json"]).data();
        let page = page.as_array().unwrap().clone();
        for event in &page {
            let seq = event["seq"].as_u64().unwrap();
            assert_eq!(seq, after + 1, "history has no gap");
            after = seq;
            if let Some(fence) = event["detail"]["fence"].as_u64() {
                let of = |field: &str| event[field].as_str().unwrap().to_owned();
                *history.entry((of("verb"), of("entity"), fence)).or_default() += 1;
            }
        }
        if page.is_empty() {
            break;
        }
    }
    for (what, times) in &history {
        assert_eq!(*times, 1, "{what:?} happened {times} times");
    }
    let mut once = BTreeSet::new();
    for ((verb, task, fence), _) in &work.told {
        assert!(once.insert((verb, task, fence)), "{verb} {task} was acknowledged twice");
        let known = history.contains_key(&((*verb).to_owned(), task.clone(), *fence));
        assert!(known, "{verb} {task} {fence} was acknowledged and is lost");
    }
    let extra = history.len() - work.told.len();
    assert!(extra <= work.failed, "{extra} in history that nobody was told, {} commands failed", work.failed);
    home.toft(home.path(), &["doctor"]).ok();
}

#[test]
fn a_server_killed_again_and_again_loses_and_doubles_nothing() {
    if no_server() {
        return;
    }
    let kills = sized(4, 50);
    let mut cluster = Cluster::start();
    let home = busy_home(&cluster.url(), kills * 400 + 500);
    let (mut backends, mut servers) = (0, 0);
    let work = work_through(&home, || {
        for kill in 0..kills {
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
    check(&home, &work);
    eprintln!(
        "{servers} kills of the server, {backends} of a backend: {} operations acknowledged, none lost, none doubled; {} commands failed",
        work.told.len(),
        work.failed
    );
}

#[test]
#[ignore = "wide: a pair of servers"]
fn a_standby_takes_over_and_nothing_acknowledged_is_lost_or_doubled() {
    if no_server() {
        return;
    }
    let rounds = sized(2, 20);
    let mut pair = Pair::start();
    let home = busy_home(&pair.url(), rounds * 400 + 500);
    let (mut promoted, mut marks) = (Vec::new(), Vec::new());
    let work = work_through(&home, || {
        for _ in 0..rounds {
            thread::sleep(Duration::from_millis(1_200));
            marks.push(Instant::now());
            promoted.push(pair.fail_over());
            thread::sleep(Duration::from_millis(800));
            pair.rebuild();
        }
        thread::sleep(Duration::from_secs(1));
    });
    check(&home, &work);
    // A command that was under way when the primary died may still be told of its success by nobody but the standby.
    let mut recoveries: Vec<Duration> = marks
        .iter()
        .zip(&promoted)
        .filter_map(|(mark, promoted)| {
            let after = *mark + *promoted;
            work.told.iter().map(|(_, at)| *at).filter(|at| *at > after).min().map(|at| at - *mark)
        })
        .collect();
    recoveries.sort();
    promoted.sort();
    eprintln!(
        "{rounds} failovers: {} operations acknowledged, none lost, none doubled; {} commands failed; promoted after {:.2?} (median), \
         work goes on after {:.2?} (median), {:.2?} (longest)",
        work.told.len(),
        work.failed,
        promoted[promoted.len() / 2],
        recoveries[recoveries.len() / 2],
        recoveries[recoveries.len() - 1]
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
    if no_server() {
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
