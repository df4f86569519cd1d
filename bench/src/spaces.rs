//! Many spaces on one server, each with agents that wait for work: what they cost while nothing happens, and how soon
//! work that comes is given to one of them.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;
use toft_cluster::Cluster;

use crate::{
    served::{Served, Wire, admin_token},
    timing,
};

/// How long the server is watched while nothing happens.
const QUIET: Duration = Duration::from_secs(5);
/// How many spaces get work.
const TRIED: usize = 20;

/// A space: its token, and the agents that wait in it.
struct WaitingSpace {
    token: String,
    agents: Vec<TcpStream>,
}

/// Measures a server with so many spaces, and so many agents in each.
pub(crate) fn run(sizes: &[(usize, usize)]) {
    println!(
        "| spaces | agents | connections to PostgreSQL | threads | memory | CPU while they wait | work is given after, median and worst |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (spaces, agents) in sizes {
        let cluster = Cluster::start_with(&[("max_connections", "2000"), ("shared_buffers", "512MB")]);
        measure(&cluster, *spaces, *agents);
    }
}

fn measure(cluster: &Cluster, spaces: usize, agents: usize) {
    let url = cluster.url();
    let served = Served::start(&url, &["--connections", "2"]);
    let mut all: Vec<WaitingSpace> = (0..spaces)
        .map(|n| WaitingSpace { token: admin_token(&format!("{url}?space=s{n}")), agents: Vec::new() })
        .collect();
    for space in &mut all {
        for n in 0..agents {
            let mut stream = TcpStream::connect(served.address()).expect("a connection");
            let body = json!({ "caller": { "agent": format!("bench-{n}") }, "request": {} }).to_string();
            let head = format!(
                "POST /v1/verbs/claim?wait=30000 HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {}\r\n",
                space.token
            );
            let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(request.as_bytes()).expect("a request");
            space.agents.push(stream);
        }
    }
    thread::sleep(Duration::from_secs(2));
    let before = served.cpu();
    thread::sleep(QUIET);
    let cpu = (served.cpu() - before).as_secs_f64() / QUIET.as_secs_f64();
    let connections = cluster.psql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'toft'");
    let status = fs::read_to_string(format!("/proc/{}/status", served.pid())).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_default()
    };
    let mut waits: Vec<Duration> =
        all.iter_mut().step_by((spaces / TRIED).max(1)).map(|space| give_work(&served, space)).collect();
    waits.sort();
    let worst = waits.last().copied().unwrap_or_default();
    println!(
        "| {spaces} | {} | {connections} | {} | {} MiB | {:.1} % of a core | {:.0?}, {worst:.0?} |",
        spaces * agents,
        field("Threads:"),
        field("VmRSS:") / 1024,
        cpu * 100.0,
        timing::median(waits),
    );
}

/// Makes a task; returns how long it took until an agent had it.
fn give_work(served: &Served, space: &mut WaitingSpace) -> Duration {
    let plan = json!({ "request": { "plan": { "title": "x", "tasks": [{ "name": "x" }] }, "source": { "kind": "prompt", "text": "x" } } });
    let begun = Instant::now();
    let made = Wire::to(served.address()).post(&space.token, "flow.new", &plan);
    assert!(made["outcome"].is_object(), "{made}");
    loop {
        for stream in &mut space.agents {
            stream.set_nonblocking(true).expect("a socket");
            if matches!(stream.read(&mut [0; 1]), Ok(1)) {
                return begun.elapsed();
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody got the work");
        thread::sleep(Duration::from_millis(1));
    }
}
