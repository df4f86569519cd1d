//! toft on PostgreSQL beside pgbench running the bare claim, on one server, in turn.

use std::{
    io::Write as _,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use toft::{ClaimQuery, Config, StoreLocation, Toft, flow::WorkflowPlan, id::TaskId, lease::Fence, verbs::renew};
use toft_cluster::Cluster;

use crate::{filters, served::Served};

/// What a bare claim and a bare finish are: one statement each, one row each.
const BARE: &str = "\
UPDATE bare SET status = 'leased', fence = fence + 1, holder = 'me', at = clock_timestamp()
WHERE id = (SELECT id FROM bare WHERE status = 'pending' ORDER BY rank FOR UPDATE SKIP LOCKED LIMIT 1)
RETURNING id, fence \\gset
UPDATE bare SET status = 'done', at = clock_timestamp() WHERE id = :id AND fence = :fence;
";

/// Makes the bare table anew, full of ready tasks.
const BARE_TABLE: &str = "\
DROP TABLE IF EXISTS bare;
CREATE TABLE bare (id bigint PRIMARY KEY, rank bigint NOT NULL, status text NOT NULL, fence bigint NOT NULL, holder text, at timestamptz, body text);
INSERT INTO bare SELECT i, i, 'pending', 0, NULL, now(), repeat('x', 200) FROM generate_series(1, 300000) i;
CREATE INDEX bare_ready ON bare (rank) WHERE status = 'pending';
";

/// Measures everything, or the parts that are named.
pub(crate) fn run(words: &[&str]) {
    let long = words.contains(&"long");
    let parts: Vec<&str> = words.iter().copied().filter(|word| *word != "long").collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let bench = Bench::start();
    if wanted("bare") {
        bench.beside_bare(if long { 6 } else { 3 });
    }
    if wanted("served") {
        bench.served(if long { 8 } else { 4 });
    }
    if wanted("batches") {
        bench.batches();
    }
    if wanted("renewals") {
        bench.renewals(if long { 100_000 } else { 10_000 });
    }
    if wanted("sizes") {
        bench.sizes(if long { &[10_000, 1_000_000, 10_000_000] } else { &[10_000, 100_000] });
    }
    if wanted("filters") {
        bench.filters(if long { &[1_000, 100_000, 1_000_000] } else { &[1_000, 100_000] });
    }
    if wanted("idle") {
        bench.idle_snapshot(if long { 40 } else { 10 });
    }
    if wanted("many") {
        bench.after_many(if long { 1_000_000 } else { 10_000 });
    }
}

struct Bench {
    cluster: Cluster,
    script: tempfile::NamedTempFile,
    repo: tempfile::TempDir,
}

impl Bench {
    fn start() -> Self {
        let cluster = Cluster::start_with(&[
            ("shared_buffers", "1GB"),
            ("max_wal_size", "8GB"),
            ("checkpoint_timeout", "15min"),
            ("max_connections", "200"),
        ]);
        let mut script = tempfile::NamedTempFile::new().expect("a file");
        script.write_all(BARE.as_bytes()).expect("a script");
        let repo = tempfile::tempdir().expect("a directory");
        let git = Command::new("git").args(["init", "-q"]).current_dir(repo.path()).status();
        assert!(git.is_ok_and(|status| status.success()), "git init");
        Self { cluster, script, repo }
    }

    /// A handle on a store, with a connection of its own.
    fn open(&self, schema: &str, agent: &str) -> Toft {
        self.open_in(self.repo.path(), schema, agent)
    }

    fn open_in(&self, dir: &Path, schema: &str, agent: &str) -> Toft {
        let url = format!("{}?schema={schema}", self.cluster.url());
        let config = Config {
            store: Some(StoreLocation::server(url)),
            dir: Some(dir.to_owned()),
            agent: Some(agent.into()),
            ..Config::default()
        };
        Toft::init(&config, false).expect("a store").0
    }

    /// A store of `count` ready tasks in workflows of 1,000: one made through the library, the others copied in SQL.
    fn fill(&self, schema: &str, count: usize) -> Toft {
        let toft = self.open(schema, "filler");
        let tasks = (0..1_000.min(count))
            .map(|n| toft::flow::PlanTask {
                name: format!("task {n}"),
                brief: "Do what the plan says, then say how it went in two sentences.".into(),
                ..toft::flow::PlanTask::default()
            })
            .collect();
        toft.start_flow(&WorkflowPlan { title: "flow".into(), tasks, ..WorkflowPlan::default() }).expect("a flow");
        self.copy(schema, count.div_ceil(1_000).saturating_sub(1));
        toft
    }

    fn copy(&self, schema: &str, copies: usize) {
        const AT_ONCE: usize = 500;
        for start in (0..copies).step_by(AT_ONCE) {
            let copies = AT_ONCE.min(copies - start);
            self.cluster.psql(&format!(
                "SET search_path = {schema}; SET synchronous_commit = off;
                CREATE TABLE IF NOT EXISTS first AS SELECT id FROM workflows ORDER BY created LIMIT 1;
                CREATE SEQUENCE IF NOT EXISTS copies;
                CREATE TEMP TABLE n AS SELECT k, lpad(to_hex(k), 6, '0') AS n FROM (SELECT nextval('copies') AS k FROM generate_series(1, {copies})) c;
                INSERT INTO workflows SELECT w.space, left(w.id, 9) || n.n, repository, worktree, status, lane_open, created + k, replace(body, w.id, left(w.id, 9) || n.n)
                    FROM workflows w, n WHERE w.id = (SELECT id FROM first);
                INSERT INTO tasks SELECT space, left(id, 9) || n.n, left(workflow, 9) || n.n, ord, repository, worktree, created + k, body
                    FROM tasks t, n WHERE t.workflow = (SELECT id FROM first);
                INSERT INTO task_states SELECT s.space, left(s.id, 9) || n.n, left(s.workflow, 9) || n.n, 'pending', 0, 0, 0, 0, NULL, NULL, s.updated
                    FROM task_states s, n WHERE s.workflow = (SELECT id FROM first);
                INSERT INTO queue (space, task, workflow, worktree, lane, rank) SELECT t.space, left(t.id, 9) || n.n, left(t.workflow, 9) || n.n, t.worktree, t.repository, '12ffffffff' || lpad(to_hex(t.created + k), 11, '0') || lpad(to_hex(t.ord), 6, '0') || left(t.id, 9) || n.n
                    FROM tasks t, n WHERE t.workflow = (SELECT id FROM first);
                INSERT INTO progress SELECT 'main', left(f.id, 9) || n.n, 1, ARRAY[1000, 0, 0, 0, 0, 0, 0, 0] FROM first f, n;"
            ));
        }
        for table in ["tasks", "task_states", "queue", "workflows", "progress", "leases", "events", "attempts"] {
            self.cluster.psql(&format!("VACUUM ANALYZE {schema}.{table}"));
        }
        self.cluster.psql("CHECKPOINT");
    }

    /// Claims and finishes a second by so many connections, each with a thread of its own.
    fn cycles(&self, schema: &str, connections: usize, seconds: u64) -> f64 {
        let tofts: Vec<Toft> = (0..connections).map(|n| self.open(schema, &format!("worker-{n}"))).collect();
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut start = Instant::now();
        thread::scope(|scope| {
            for (n, toft) in tofts.iter().enumerate() {
                let (done, over) = (&done, &over);
                scope.spawn(move || {
                    let me = toft.agent(format!("worker-{n}")).register().expect("an agent");
                    while !over.load(Ordering::Relaxed) {
                        let Some(job) = me.claim(ClaimQuery::ready()).expect("a claim") else { break };
                        job.done("m").no_change("c").commit().expect("a finish");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(Duration::from_millis(500));
            start = Instant::now();
            done.store(0, Ordering::Relaxed);
            thread::sleep(Duration::from_secs(seconds));
            over.store(true, Ordering::Relaxed);
        });
        done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
    }

    /// Bare claims and finishes a second.
    fn bare(&self, connections: usize, seconds: u64) -> f64 {
        let output = Command::new("pgbench")
            .args(["-h", "127.0.0.1", "-p", &self.cluster.port().to_string(), "-U", "postgres", "-n", "-M", "prepared"])
            .args(["-c", &connections.to_string(), "-j", "2", "-T", &seconds.to_string()])
            .arg("-f")
            .arg(self.script.path())
            .arg("toft")
            .output()
            .expect("pgbench");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.unwrap_or_else(|| panic!("pgbench: {text} {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn beside_bare(&self, seconds: u64) {
        println!("| connections | toft, pairs/s | bare, pairs/s | ratio | aim |\n| --- | --- | --- | --- | --- |");
        self.fill("beside", 300_000);
        for connections in [1, 8, 32, 64] {
            self.cluster.psql(BARE_TABLE);
            self.cluster.psql("VACUUM ANALYZE bare");
            self.cluster.psql("CHECKPOINT");
            let theirs = self.bare(connections, seconds);
            let ours = self.cycles("beside", connections, seconds);
            println!("| {connections} | {ours:.0} | {theirs:.0} | {:.2} | ≥ 0.5 |", ours / theirs);
        }
    }

    /// Through `toft serve`, one space, receipts on; and two spaces at once.
    fn served(&self, seconds: u64) {
        println!("| clients | served, pairs/s | p50 | p99 | server, CPU a pair | bare at 8, pairs/s | ratio | aim |");
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        self.fill("served", 45_000);
        let store = format!("{}?schema=served&space=main", self.cluster.url());
        let server = Served::start(&store, &[]);
        for clients in [1, 8, 32, 256] {
            self.cluster.psql(BARE_TABLE);
            self.cluster.psql("VACUUM ANALYZE bare");
            self.cluster.psql("CHECKPOINT");
            let theirs = self.bare(8, seconds);
            let before = server.cpu();
            let (ours, p50, p99) = server.pairs(clients, seconds);
            let cpu = (server.cpu() - before).as_micros() as f64 / (ours * (seconds + 1) as f64);
            println!(
                "| {clients} | {ours:.0} | {p50:.1?} | {p99:.1?} | {cpu:.0} µs | {theirs:.0} | {:.2} | ≥ 0.9 at 256 |",
                ours / theirs
            );
        }
    }

    fn batches(&self) {
        let toft = self.fill("batches", 40_000);
        let me = toft.agent("batcher").register().expect("an agent");
        // Only claiming is timed; what was claimed is finished before the next, as an agent would.
        let rate = |each: usize, times: usize| {
            let mut claiming = Duration::ZERO;
            for _ in 0..times {
                let start = Instant::now();
                let jobs = me.claim_many(ClaimQuery::ready(), each).expect("claims");
                claiming += start.elapsed();
                assert_eq!(jobs.len(), each);
                for job in jobs {
                    job.done("m").no_change("c").commit().expect("a finish");
                }
            }
            (each * times) as f64 / claiming.as_secs_f64()
        };
        rate(1, 100);
        let (one, twenty) = (rate(1, 400), rate(20, 40));
        println!(
            "\nclaims a second over one connection: {one:.0} one at a time, {twenty:.0} in twenties, {:.1} times (aim 3)",
            twenty / one
        );
    }

    fn renewals(&self, leases: usize) {
        const EACH: usize = 500;
        let toft = self.fill("renewals", leases);
        let mut keepers = Vec::new();
        for n in 0..leases / EACH {
            let name = format!("keeper-{n}");
            let me = toft.agent(&name).register().expect("an agent");
            let jobs = me.claim_many(ClaimQuery::ready(), EACH).expect("claims");
            let holds: Vec<(TaskId, Fence)> =
                jobs.iter().map(|job| (job.task().id.clone(), job.hold().fence())).collect();
            jobs.into_iter().for_each(std::mem::forget);
            keepers.push((name, holds));
        }
        let start = Instant::now();
        for (name, holds) in &keepers {
            let request = renew::Request { holds: holds.clone(), ttl: None };
            let outcome = toft.perform_as(name, None, request).expect("renewals");
            assert_eq!(outcome.renewed.len(), EACH);
        }
        let took = start.elapsed();
        println!(
            "\n{leases} live leases renewed in batches of {EACH} over one connection in {took:.1?}: {:.0}% of one connection's time if done every 30 s",
            took.as_secs_f64() / 30.0 * 100.0
        );
    }

    fn sizes(&self, sizes: &[usize]) {
        println!(
            "\n| tasks | pairs/s over 8 connections | claim, one connection | to the first |\n| --- | --- | --- | --- |"
        );
        let tofts: Vec<Toft> = sizes.iter().map(|size| self.fill(&format!("size{size}"), *size)).collect();
        let mut rates = vec![Vec::new(); sizes.len()];
        for _ in 0..3 {
            for (size, rates) in sizes.iter().zip(&mut rates) {
                rates.push(self.cycles(&format!("size{size}"), 8, 4));
            }
        }
        let middle = |rates: &[f64]| {
            let mut sorted = rates.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        for ((size, toft), each) in sizes.iter().zip(&tofts).zip(&rates) {
            let me = toft.agent("timer").register().expect("an agent");
            let times: Vec<_> = (0..200)
                .map(|_| {
                    let start = Instant::now();
                    std::mem::forget(me.claim(ClaimQuery::ready()).expect("a claim"));
                    start.elapsed()
                })
                .collect();
            let rate = middle(each);
            let claim = toft_bench::timing::median(times);
            println!("| {size} | {rate:.0} | {claim:.2?} | {:.2} |", middle(&rates[0]) / rate);
        }
    }

    fn filters(&self, sizes: &[usize]) {
        filters::header();
        let dir = tempfile::tempdir().expect("a directory");
        let linked = filters::link(self.repo.path(), &dir.path().join("linked"));
        for size in sizes {
            let schema = format!("filters{size}");
            let toft = self.fill(&schema, *size);
            let other = self.open_in(&linked, &schema, "filler");
            filters::measure(&format!("PostgreSQL, {size}"), &toft, &other);
        }
    }

    fn idle_snapshot(&self, seconds: u64) {
        self.fill("idle", 500_000);
        let before = self.cycles("idle", 8, 5);
        let mut holder = Command::new("psql")
            .args(["-h", "127.0.0.1", "-p", &self.cluster.port().to_string(), "-U", "postgres", "-XAtq", "toft"])
            .args(["-c", "BEGIN ISOLATION LEVEL REPEATABLE READ", "-c", "SELECT 1", "-c", "SELECT pg_sleep(600)"])
            .spawn()
            .expect("psql");
        thread::sleep(Duration::from_millis(500));
        let mut rates = Vec::new();
        for _ in 0..seconds / 5 {
            rates.push(format!("{:.0}", self.cycles("idle", 8, 5)));
        }
        holder.kill().expect("it ends");
        holder.wait().expect("it ended");
        println!(
            "\npairs/s over 8 connections: {before:.0} before, then beside an idle snapshot, every 5 s: {}",
            rates.join(", ")
        );
    }

    fn after_many(&self, claims: u64) {
        self.fill("many", claims as usize + 300_000);
        let mut curve = vec![self.cycles("many", 8, 5)];
        let (start, mut done) = (Instant::now(), 0.0);
        while done < claims as f64 {
            let rate = self.cycles("many", 8, 60);
            done += rate * 60.0;
            curve.push(rate);
        }
        curve.push(self.cycles("many", 8, 5));
        let shown: Vec<_> = curve.iter().map(|rate| format!("{rate:.0}")).collect();
        println!(
            "\npairs/s over 8 connections, fresh to after {done:.0} claims ({:.0?}): {}; last to first {:.2}",
            start.elapsed(),
            shown.join(", "),
            curve[0] / curve[curve.len() - 1]
        );
    }
}
