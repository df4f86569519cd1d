//! Far workers: each claims, works and finishes through a link that fails, and repeats every call until it is answered.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long the first try of a call may take before the call is sent again, to the other server. Each further try that
/// takes too long doubles it: a busy server would have to answer more and more tries otherwise.
const FIRST_TRY: Duration = Duration::from_secs(2);
/// How long any try may take.
pub const LONGEST_TRY: Duration = Duration::from_secs(8);
/// How long a call may stay without an answer.
const PATIENCE: Duration = Duration::from_secs(90);
/// A pause before a call is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than any run, so no lease expires.
const LEASE_MS: u64 = 3 * 3_600_000;

/// Numbers that look random and repeat for the same seed.
pub struct Dice(pub u64);

impl Dice {
    /// A number from 0 up to, but not including, `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// A time from `from` up to `to`, in milliseconds.
    pub fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.roll(to - from))
    }
}

/// What a call asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Any task.
    Claim,
    /// To store progress on its task.
    Save,
    /// To mark its task as done.
    Finish,
    /// To give its task back.
    Release,
    /// To mark a task as done under a fence that is over.
    FinishLate,
    /// The same as before, under the same operation id.
    Again,
}

/// One call as its worker saw it; times are nanoseconds since the start of the run.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its number.
    pub worker: usize,
    /// What it asked for.
    pub asked: Asked,
    /// The operation id.
    pub op: String,
    /// The task; empty if nothing was ready.
    pub task: String,
    /// The fence under which the worker had the task.
    pub fence: u64,
    /// Whether it was done.
    pub ok: bool,
    /// When it was sent for the first time.
    pub begin: u64,
    /// When the answer came.
    pub end: u64,
    /// How often it was sent.
    pub tries: u32,
}

/// What all workers of a run share.
pub struct Shift {
    /// The machine's one clock.
    pub start: Instant,
    /// Workers end with the task that they have.
    pub over: AtomicBool,
    /// Workers that had an answer.
    pub begun: AtomicUsize,
    /// Tasks that nobody has finished yet.
    pub open: AtomicUsize,
    /// What all dice begin with.
    pub seed: u64,
    /// The longest time that a worker works on a task, in milliseconds.
    pub longest_work: u64,
}

impl Shift {
    /// Ends the shift.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Ends the shift when it is dropped: by the one whose turn it is to end it, and by each whose thread panics, so that
/// nobody waits for others who go on.
pub struct Bell<'a> {
    /// The shift.
    pub shift: &'a Shift,
    /// It rings only for a panic.
    pub alarm: bool,
}

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        if !self.alarm || thread::panicking() {
            self.shift.end();
        }
    }
}

/// A client of two servers, which uses one of them until it does not answer.
pub struct FarClient {
    servers: [SocketAddr; 2],
    token: String,
    agent: String,
    current: usize,
    connection: Option<BufReader<TcpStream>>,
    /// Answers that no verb should give.
    pub wrong: Vec<String>,
}

impl FarClient {
    /// A client that asks `servers[first]` first.
    pub fn new(servers: [SocketAddr; 2], token: &str, agent: String, first: usize) -> Self {
        Self { servers, token: token.to_owned(), agent, current: first % 2, connection: None, wrong: Vec::new() }
    }

    /// Sends a verb until it is answered; returns the status, the answer, and how often it was sent.
    pub fn call(&mut self, verb: &str, op: &str, request: &Value) -> (u16, Value, u32) {
        let body = json!({ "caller": { "agent": self.agent }, "op": { "id": op, "request": "" }, "request": request });
        let (begun, body, mut patience) = (Instant::now(), body.to_string(), FIRST_TRY);
        let mut causes: BTreeMap<String, usize> = BTreeMap::new();
        for tries in 1.. {
            let cause = match self.send(verb, &body, patience) {
                Ok((status, said)) if status < 500 => return (status, said, tries),
                Ok((status, said)) => {
                    if !(502..=504).contains(&status) {
                        self.wrong.push(format!("{verb} {op}: {status} {said}"));
                    }
                    format!("{status} {said}")
                }
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        patience = (patience * 2).min(LONGEST_TRY);
                    }
                    format!("{error:?}")
                }
            };
            *causes.entry(format!("server {}: {cause}", self.current)).or_default() += 1;
            let waited = begun.elapsed();
            assert!(waited < PATIENCE, "{} {verb} {op}: no answer after {tries} tries: {causes:#?}", self.agent);
            self.connection = None;
            self.current = 1 - self.current;
            thread::sleep(PAUSE);
        }
        unreachable!("a call ends with an answer or a panic")
    }

    fn send(&mut self, verb: &str, body: &str, patience: Duration) -> io::Result<(u16, Value)> {
        let stream = match &mut self.connection {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&self.servers[self.current], FIRST_TRY)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(FIRST_TRY))?;
                none.insert(BufReader::new(stream))
            }
        };
        stream.get_mut().set_read_timeout(Some(patience))?;
        let token = &self.token;
        let head = format!(
            "POST /v1/verbs/{verb} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        let (mut line, mut length) = (String::new(), 0);
        stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        loop {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut said = vec![0; length];
        stream.read_exact(&mut said)?;
        Ok((status, serde_json::from_slice(&said)?))
    }
}

/// Claims, works and finishes until the shift is over; returns what the worker saw. It holds nothing in the end.
pub fn work(shift: &Shift, worker: usize, client: &mut FarClient) -> Vec<Seen> {
    let mut dice = Dice(shift.seed ^ (worker as u64 + 1).wrapping_mul(0x9e37_79b9));
    let mut history = Vec::new();
    let mut calls = 0;
    let mut call = |client: &mut FarClient, asked, verb: &str, op: Option<&str>, request: &Value| {
        calls += 1;
        let op = op.map_or_else(|| format!("op_far{worker}x{calls}"), str::to_owned);
        let begin = shift.now();
        let (status, said, tries) = client.call(verb, &op, request);
        let (task, fence) = (String::new(), 0);
        let seen = Seen { worker, asked, op, task, fence, ok: status == 200, begin, end: shift.now(), tries };
        (seen, status, said)
    };
    while !shift.is_over() {
        let claim = json!({ "ttl_ms": LEASE_MS });
        let (mut claimed, status, said) = call(client, Asked::Claim, "claim", None, &claim);
        if history.is_empty() {
            shift.begun.fetch_add(1, Ordering::SeqCst);
        }
        if status == 404 {
            history.push(claimed);
            thread::sleep(PAUSE);
            continue;
        }
        assert_eq!(status, 200, "{}: {said}", claimed.op);
        let won = said["outcome"]["claims"][0].clone();
        claimed.task = won["task"]["id"].as_str().expect("a task").to_owned();
        claimed.fence = won["lease"]["fence"].as_u64().expect("a fence");
        let (task, fence) = (claimed.task.clone(), claimed.fence);
        let mut note = |mut seen: Seen| {
            (seen.task, seen.fence) = (task.clone(), fence);
            history.push(seen);
        };
        let claim_op = claimed.op.clone();
        note(claimed);
        thread::sleep(dice.time(2, shift.longest_work));
        if dice.roll(3) == 0 {
            let half = json!({ "id": task, "fence": won["lease"]["token"], "message": "half" });
            let (saved, status, said) = call(client, Asked::Save, "save", None, &half);
            assert_eq!(status, 200, "{} of {task} under {fence}, which nobody else can hold: {said}", saved.op);
            note(saved);
        }
        let done = dice.roll(4) != 0;
        let how = if done { json!({ "done": { "no_change": "x" } }) } else { json!("release") };
        let end = json!({ "id": task, "fence": won["lease"]["token"], "how": how, "message": "x" });
        let asked = if done { Asked::Finish } else { Asked::Release };
        let (ended, status, said) = call(client, asked, "finish", None, &end);
        assert_eq!(status, 200, "{} of {task} under {fence}, which nobody else can hold: {said}", ended.op);
        if done {
            shift.open.fetch_sub(1, Ordering::SeqCst);
        }
        let end_op = ended.op.clone();
        note(ended);
        match dice.roll(10) {
            0 => {
                // Its fence is over; another may have the task now.
                let late =
                    json!({ "id": task, "fence": won["lease"]["token"], "how": { "done": { "no_change": "late" } } });
                let (late, status, said) = call(client, Asked::FinishLate, "finish", None, &late);
                assert!(status == 409 || status == 404, "{} under an old fence: {status} {said}", late.op);
                note(late);
            }
            1 => {
                let (again, _, said) = call(client, Asked::Again, "claim", Some(&claim_op), &claim);
                let same = &said["outcome"]["claims"][0]["lease"]["token"];
                assert_eq!(same, &won["lease"]["token"], "{claim_op} was answered otherwise before: {said}");
                note(again);
            }
            2 => {
                let (again, status, said) = call(client, Asked::Again, "finish", Some(&end_op), &end);
                assert_eq!(status, 200, "{end_op} was answered otherwise before: {said}");
                note(again);
            }
            _ => {}
        }
    }
    history
}

/// Makes tasks for a shift.
pub struct Feeder {
    /// How it reaches the servers.
    pub client: FarClient,
    /// Tasks that were made.
    pub made: usize,
    plans: usize,
}

impl Feeder {
    /// A feeder that has made nothing yet.
    pub fn new(client: FarClient) -> Self {
        Self { client, made: 0, plans: 0 }
    }

    /// Makes a plan of this many tasks.
    pub fn plan(&mut self, shift: &Shift, count: usize) {
        self.plans += 1;
        let tasks: Vec<Value> = (0..count).map(|n| json!({ "name": format!("t{n}") })).collect();
        let source = json!({ "kind": "prompt", "text": "x" });
        let request = json!({ "plan": { "title": format!("plan {}", self.plans), "tasks": tasks }, "source": source });
        let (status, said, _) = self.client.call("flow.new", &format!("op_plan{}", self.plans), &request);
        assert_eq!(status, 200, "{said}");
        self.made += count;
        shift.open.fetch_add(count, Ordering::SeqCst);
    }

    /// Keeps more tasks open than there are workers, until the shift is over.
    pub fn feed(&mut self, shift: &Shift, workers: usize) {
        while !shift.is_over() {
            if shift.open.load(Ordering::SeqCst) < workers * 2 {
                self.plan(shift, workers);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
