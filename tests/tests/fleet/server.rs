//! A server that is killed, and one whose standby takes over: nothing acknowledged is lost, nothing is done twice. And
//! what a server is asked besides: proof of who it is, news for who waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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
    home.use_store(&new_store_on(server));
    let repo = home.repo("api");
    let plan = home.path().join("plan.json");
    let tasks: Vec<_> = (0..tasks).map(|n| serde_json::json!({ "name": format!("t{n}") })).collect();
    std::fs::write(&plan, serde_json::json!({ "title": "load", "tasks": tasks }).to_string()).unwrap();
    home.toft(&repo, &["flow", "apply", plan.to_str().unwrap()]).ok();
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
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "only"]).ok();
    home.toft(&repo, &["claim"]).ok();
    let stranger = format!("{url}?sslmode=require&sslrootcert={}", home.path().join("other.pem").display());
    let start = Instant::now();
    assert!(home.toft(&repo, &["--store", &stranger, "status"]).fails(7).contains("certificate"));
    assert!(start.elapsed() < Duration::from_secs(5), "a stranger is not waited for");
}

/// Whether a commit would tell somebody now.
fn somebody_waits(cluster: &Cluster) -> bool {
    let schema = cluster.psql("SELECT schemaname FROM pg_tables WHERE tablename = 'waiters'");
    let waiting = "WHERE since <= clock_timestamp() AND until > clock_timestamp()";
    cluster.psql(&format!("SELECT count(*) FROM {}.waiters {waiting}", schema.trim())).trim() != "0"
}

fn until_somebody_waits(cluster: &Cluster) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !somebody_waits(cluster) {
        assert!(Instant::now() < patience, "the waiter never signed in");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "wide: minutes of waiting commands"]
fn a_burst_of_commits_is_told_now_and_then() {
    if no_server() {
        return;
    }
    let cluster = Cluster::start();
    let home = busy_home(&cluster.url(), 2_000);
    let repo = home.path().join("api");
    let mut follower =
        home.command(&repo, toft_stories::toft_bin(), &["history", "--follow", "--limit=100000", "--json"]);
    let mut follower = follower.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let (lines, count) = (BufReader::new(follower.stdout.take().unwrap()).lines(), heard.clone());
    thread::spawn(move || {
        for _ in lines.map_while(Result::ok).filter(|line| line.contains("\"verb\":\"claim\"")) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    until_somebody_waits(&cluster);
    let start = Instant::now();
    let work = work_through(&home, || thread::sleep(Duration::from_secs(3)));
    let done = work.told.iter().filter(|((verb, ..), _)| *verb == "claim").count();
    let until = |what: &str, holds: &mut dyn FnMut() -> bool| {
        let patience = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < patience, "{what}");
            thread::sleep(Duration::from_millis(100));
        }
    };
    until("a follower misses nothing", &mut || heard.load(Ordering::SeqCst) == done);
    let most = start.elapsed().as_millis() / 50 + 2;
    follower.kill().unwrap();
    follower.wait().unwrap();
    // A server counts what a connection did when it ends, or a second later.
    let signed_in = "SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE relname = 'waiters'";
    let mut told = 0;
    until("the follower was told", &mut || {
        told = cluster.psql(signed_in).trim().parse::<u128>().unwrap();
        told > 1
    });
    // It signs in once for each time that it is told, and then rests.
    assert!(told <= most, "{told} times for {done} claims, at most {most}");
    eprintln!("{done} claims; their follower was told {told} times");
}

#[test]
#[ignore = "wide: minutes of waiting commands"]
fn a_waiting_claim_hears_of_work_at_once_and_quiet_waiting_asks_little() {
    if no_server() {
        return;
    }
    let cluster = Cluster::start();
    let home = busy_home(&cluster.url(), 1);
    let repo = home.path().join("api");
    home.toft(&repo, &["claim", "--as", "first"]).ok();
    let waits: Vec<Duration> = (0..5)
        .map(|n| {
            let mut waiter = home.command(&repo, toft_stories::toft_bin(), &["claim", "--wait=30s", "--as", "second"]);
            let mut waiter = waiter.stdout(std::process::Stdio::null()).spawn().unwrap();
            until_somebody_waits(&cluster);
            let asked = || {
                cluster.psql("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database").parse::<u64>().unwrap()
            };
            let (before, still) = (asked(), Instant::now());
            thread::sleep(Duration::from_secs(2));
            let rate = (asked() - before) as f64 / still.elapsed().as_secs_f64();
            assert!(rate < 30.0, "{rate} transactions a second while one claim waits");
            home.toft(&repo, &["flow", "new", &format!("late {n}")]).ok();
            let told = Instant::now();
            assert!(waiter.wait().unwrap().success());
            told.elapsed()
        })
        .collect();
    let longest = waits.iter().max().unwrap();
    assert!(*longest < Duration::from_millis(700), "{waits:?}");
    eprintln!("waiting claims were served {waits:.0?} after work was committed");
}

#[test]
#[ignore = "wide: minutes of waiting commands"]
fn hundreds_of_waiting_commands_hold_few_connections_and_all_get_served() {
    if no_server() {
        return;
    }
    let (waiters, most) = (sized(100, 500), sized(30, 100));
    let cluster = Cluster::start_with(&[("max_connections", &most.to_string())]);
    let home = busy_home(&cluster.url(), 1);
    let repo = home.path().join("api");
    home.toft(&repo, &["claim", "--as", "first"]).ok();
    let waiting: Vec<_> = (0..waiters)
        .map(|n| {
            let agent = format!("w{n}");
            let mut waiter =
                home.command(&repo, toft_stories::toft_bin(), &["claim", "--wait=240s", "--as", &agent, "-q"]);
            waiter.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let connections = || {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'toft'";
        cluster.try_psql(count).ok().and_then(|text| text.trim().parse::<usize>().ok())
    };
    // Every one of them has looked and waits.
    let patience = Instant::now() + Duration::from_secs(120);
    let mut calm = 0;
    while calm < 8 {
        assert!(Instant::now() < patience, "they never came to rest: {:?}", connections());
        calm = if connections().is_some_and(|count| count <= 6) { calm + 1 } else { 0 };
        thread::sleep(Duration::from_millis(100));
    }
    let mut largest = 0;
    for _ in 0..20 {
        largest = largest.max(connections().unwrap_or(most));
        thread::sleep(Duration::from_millis(100));
    }
    assert!(largest < 20, "{largest} connections while {waiters} commands wait");
    let start = Instant::now();
    home.toft(&repo, &["status"]).ok();
    assert!(start.elapsed() < Duration::from_secs(10), "others are served meanwhile: {:?}", start.elapsed());
    let plan = home.path().join("more.json");
    let tasks: Vec<_> = (0..waiters).map(|n| serde_json::json!({ "name": format!("more{n}") })).collect();
    std::fs::write(&plan, serde_json::json!({ "title": "more", "tasks": tasks }).to_string()).unwrap();
    home.toft(&repo, &["flow", "apply", plan.to_str().unwrap()]).ok();
    let start = Instant::now();
    let mut claimed = BTreeSet::new();
    for waiter in waiting {
        let said = waiter.wait_with_output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert!(claimed.insert(String::from_utf8_lossy(&said.stdout).trim().to_owned()), "{said:?}");
    }
    eprintln!(
        "{waiters} waiting commands on a server of {most} connections: at most {largest} held while they wait, all served {:.1?} after",
        start.elapsed()
    );
}
