//! A fleet at work: agents in many spaces that claim, renew and finish as often as agents do who work ten minutes on a task.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fs,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use toft_cluster::Cluster;

use crate::served::{Served, Wire, admin_token};

/// How long an agent works on a task, and how often it renews meanwhile.
const WORKS: Duration = Duration::from_secs(600);
const RENEWS: Duration = Duration::from_secs(30);
/// How long the fleet is watched.
const WATCHED: Duration = Duration::from_secs(30);
/// Threads that play the agents.
const PLAYERS: usize = 16;

/// An agent: its space's token, and what it holds.
struct FleetAgent {
    token: String,
    name: String,
    task: Value,
    fence: Value,
    ends: Instant,
}

/// Measures so many spaces with so many agents each.
pub(crate) fn run(sizes: &[(usize, usize)]) {
    println!(
        "| spaces | agents | requests a second, wanted and done | claim: median, 99th | finish | renew | CPU of the server, of PostgreSQL | connections | memory |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (spaces, agents) in sizes {
        let cluster = Cluster::start_with(&[("max_connections", "3000"), ("shared_buffers", "512MB")]);
        measure(&cluster, *spaces, *agents);
    }
}

fn measure(cluster: &Cluster, spaces: usize, agents: usize) {
    let url = cluster.url();
    let served = Served::start(&url, &["--connections", "2"]);
    let tokens: Vec<String> = (0..spaces).map(|n| admin_token(&format!("{url}?space=s{n}"))).collect();
    let (before, times) = play(&served, &tokens, agents);
    let done = times.values().map(Vec::len).sum::<usize>();
    let connections = cluster.psql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'toft'");
    let (took, own, database) = (before.0.elapsed(), served.cpu() - before.1, database_cpu().saturating_sub(before.2));
    let status = fs::read_to_string(format!("/proc/{}/status", served.pid())).unwrap_or_default();
    let memory =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<u64>().ok());
    let all = (spaces * agents) as f64;
    let wanted = all / RENEWS.as_secs_f64() + 3.0 * all / WORKS.as_secs_f64();
    let shown = |verb: &str| {
        let mut times = times.get(verb).cloned().unwrap_or_default();
        times.sort();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        format!("{:.1?}, {:.1?}", at(50), at(99))
    };
    let share = |time: Duration| time.as_secs_f64() / took.as_secs_f64() * 100.0;
    println!(
        "| {spaces} | {} | {wanted:.0}, {:.0} | {} | {} | {} | {:.0} %, {:.0} % of a core | {connections} | {} MiB |",
        spaces * agents,
        done as f64 / WATCHED.as_secs_f64(),
        shown("claim"),
        shown("finish"),
        shown("renew"),
        share(own),
        share(database),
        memory.unwrap_or_default() / 1024,
    );
}

/// How long requests took, by verb.
type Times = BTreeMap<String, Vec<Duration>>;

/// When something began, and the CPU that the server and the database had used by then.
type Begin = (Instant, Duration, Duration);

/// Lets agents work.
fn play(served: &Served, tokens: &[String], agents: usize) -> (Begin, Times) {
    let (mut times, ready) = (Times::new(), Barrier::new(PLAYERS + 1));
    let mut begun = None;
    thread::scope(|scope| {
        let player = |number: usize| {
            let mine: Vec<&String> = tokens.iter().skip(number).step_by(PLAYERS).collect();
            let ready = &ready;
            scope.spawn(move || play_some(served, &mine, agents, number, ready))
        };
        let players: Vec<_> = (0..PLAYERS).map(player).collect();
        ready.wait();
        begun = Some((Instant::now(), served.cpu(), database_cpu()));
        for player in players {
            for (verb, more) in player.join().expect("a player") {
                times.entry(verb).or_default().extend(more);
            }
        }
    });
    (begun.expect("they began"), times)
}

fn play_some(served: &Served, tokens: &[&String], agents: usize, number: usize, ready: &Barrier) -> Times {
    let mut wire = Wire::to(served.address());
    let (mut chance, mut op, mut times) = (number as u64 + 1, 0_u64, Times::new());
    // A number between 0 and 1 that looks random, and is the same in every run.
    let mut random = move || {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((chance >> 11) as f64 / (1_u64 << 53) as f64).max(1e-9)
    };
    let mut ask = |token: &str, agent: &str, verb: &str, request: &Value| {
        op += 1;
        let op = json!({ "id": format!("op_{number}_{op}"), "request": "" });
        let begun = Instant::now();
        let said = wire.post(token, verb, &json!({ "caller": { "agent": agent }, "op": op, "request": request }));
        (said, begun.elapsed())
    };
    let plan =
        json!({ "plan": { "title": "x", "tasks": [{ "name": "x" }] }, "source": { "kind": "prompt", "text": "x" } });
    let mut all = Vec::new();
    for token in tokens {
        for n in 0..agents {
            let name = format!("bench-{n}");
            ask(token, "bench", "flow.new", &plan);
            let (said, _) = ask(token, &name, "claim", &json!({}));
            let claim = &said["outcome"]["claims"][0];
            let (task, fence) = (claim["task"]["id"].clone(), claim["lease"]["token"].clone());
            assert!(task.is_string(), "{said}");
            // Who worked for some time already goes on as long as anybody else.
            let ends = Instant::now() + WORKS.mul_f64(-random().ln());
            all.push(FleetAgent { token: (*token).clone(), name, task, fence, ends });
        }
    }
    ready.wait();
    let begun = Instant::now();
    let mut next: BinaryHeap<Reverse<(Instant, usize)>> =
        (0..all.len()).map(|n| Reverse((begun + RENEWS.mul_f64(random()), n))).collect();
    while let Some(Reverse((at, n))) = next.pop() {
        if at > begun + WATCHED {
            break;
        }
        thread::sleep(at.saturating_duration_since(Instant::now()));
        let agent = &mut all[n];
        let mut timed = |token: &str, name: &str, verb: &str, request: &Value| {
            let (said, took) = ask(token, name, verb, request);
            times.entry(verb.to_owned()).or_default().push(took);
            said
        };
        if at < agent.ends {
            let renewed = timed(&agent.token, &agent.name, "renew", &json!({ "holds": [[agent.task, agent.fence]] }));
            assert!(renewed["outcome"].is_object(), "{renewed}");
        } else {
            let end = json!({ "id": agent.task, "fence": agent.fence, "how": { "done": { "no_change": "x" } }, "message": "x" });
            let ended = timed(&agent.token, &agent.name, "finish", &end);
            assert!(ended["outcome"].is_object(), "{ended}");
            timed(&agent.token, "bench", "flow.new", &plan);
            let said = timed(&agent.token, &agent.name, "claim", &json!({}));
            let claim = &said["outcome"]["claims"][0];
            (agent.task, agent.fence) = (claim["task"]["id"].clone(), claim["lease"]["token"].clone());
            agent.ends = Instant::now() + WORKS.mul_f64(-random().ln());
        }
        // It renews, or ends earlier.
        next.push(Reverse((agent.ends.min(at + RENEWS).max(at), n)));
    }
    times
}

/// CPU time that all processes of PostgreSQL have used, with those that ended.
fn database_cpu() -> Duration {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if stat.contains("(postgres)") {
            let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
            ticks += [12, 13, 14, 15].iter().filter_map(|n| words.get(*n)?.parse::<u64>().ok()).sum::<u64>();
        }
    }
    Duration::from_millis(ticks * 10)
}
