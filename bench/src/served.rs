//! `toft serve` beside pgbench running the bare claim, on one PostgreSQL, in turn.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::toft_bin;

/// A running server.
pub(crate) struct Served {
    child: Child,
    address: String,
    token: String,
}

impl Served {
    /// Serves a store; its first token is an admin's.
    pub(crate) fn start(store: &str, args: &[&str]) -> Self {
        let mut child = Command::new(toft_bin())
            .args(["serve", "-q", "--listen", "127.0.0.1:0", "--store", store])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut url).expect("its address");
        let address = url.trim().trim_start_matches("http://").to_owned();
        Self { child, address, token: admin_token(store) }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time that the server has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let ticks: u64 = [12, 13].iter().filter_map(|n| words.get(*n)?.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Pairs of claim and finish a second by so many clients, and the median and 99th percentile of a request.
    pub(crate) fn pairs(&self, clients: usize, seconds: u64) -> (f64, Duration, Duration) {
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut times = Vec::new();
        thread::scope(|scope| {
            let work = |n: usize| {
                let (done, over) = (&done, &over);
                scope.spawn(move || self.client(n, over, done))
            };
            let workers: Vec<_> = (0..clients).map(work).collect();
            thread::sleep(Duration::from_secs(1));
            done.store(0, Ordering::Relaxed);
            thread::sleep(Duration::from_secs(seconds));
            over.store(true, Ordering::Relaxed);
            times = workers.into_iter().flat_map(|worker| worker.join().expect("a client")).collect();
        });
        let rate = done.load(Ordering::Relaxed) as f64 / seconds as f64;
        times.sort();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        (rate, at(50), at(99))
    }

    fn client(&self, n: usize, over: &AtomicBool, done: &AtomicU64) -> Vec<Duration> {
        let (mut wire, mut times) = (Wire::to(&self.address), Vec::new());
        let caller = json!({ "agent": format!("bench-{n}") });
        let mut ops = 0_u64;
        let mut ask = |verb: &str, request: Value| {
            ops += 1;
            let op = json!({ "id": format!("op_{n}_{ops}_{}", std::process::id()), "request": "" });
            let begun = Instant::now();
            let said = wire.post(&self.token, verb, &json!({ "caller": caller, "op": op, "request": request }));
            times.push(begun.elapsed());
            said
        };
        while !over.load(Ordering::Relaxed) {
            let said = ask("claim", json!({}));
            let claim = &said["outcome"]["claims"][0];
            if claim.is_null() {
                break;
            }
            let (id, fence) = (claim["task"]["id"].clone(), claim["lease"]["token"].clone());
            let end = json!({ "id": id, "fence": fence, "how": { "done": { "no_change": "x" } }, "message": "x" });
            let said = ask("finish", end);
            assert!(said["outcome"].is_object(), "{said}");
            done.fetch_add(1, Ordering::Relaxed);
        }
        times
    }
}

/// A new token of an admin of a store.
pub(crate) fn admin_token(store: &str) -> String {
    let args = ["token", "create", "bench", "--role", "admin", "-q", "--store", store];
    let made = Command::new(toft_bin()).args(args).output().expect("a token");
    String::from_utf8_lossy(&made.stdout).trim().to_owned()
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to a server.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::new(stream))
    }

    pub(crate) fn post(&mut self, token: &str, verb: &str, body: &Value) -> Value {
        let body = body.to_string();
        let head = format!("POST /v1/verbs/{verb} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {token}\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        self.0.get_mut().write_all(request.as_bytes()).expect("a request");
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            self.0.read_line(&mut line).expect("an answer");
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).unwrap_or_default()
    }
}
