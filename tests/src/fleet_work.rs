//! Workers that claim and finish tasks of a server whose database fails, and the check of what they were told against
//! the history.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::fleet::{FleetServer, Wire};

/// How long a client asks again before the story fails.
const GIVE_UP: Duration = Duration::from_secs(180);

/// What the server asks of a client after a 503, in its header `retry-after`.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many tasks a worker plans when nothing is ready.
const PLANNED: usize = 200;

/// Numbers the operations of this process.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// A client that asks again, with the same operation id and the next server, when its connection breaks, its patience
/// ends, or the server answers 503.
pub struct RetryingClient {
    addresses: Vec<String>,
    current: usize,
    token: String,
    patience: Duration,
    wire: Option<Wire>,
    retries: Retries,
}

/// How often a client had to ask again, and why.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retries {
    /// The connection broke, or could not be made.
    pub broken: usize,
    /// No answer came in time.
    pub timed_out: usize,
    /// The server answered 503.
    pub unavailable: usize,
}

/// An answer, and when the client first asked and was told.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub said: Value,
    asked: Instant,
    told: Instant,
}

impl RetryingClient {
    /// A client that waits for an answer for as long as its patience lasts, and then asks again on another connection,
    /// although the server may still be at work on the first.
    pub fn new(server: &FleetServer, token: &str, patience: Duration) -> Self {
        Self::between(vec![server.url.trim_start_matches("http://").to_owned()], token, patience)
    }

    /// A client of several servers, which uses one of them until it does not answer.
    pub fn between(addresses: Vec<String>, token: &str, patience: Duration) -> Self {
        let (token, retries) = (token.to_owned(), Retries::default());
        Self { addresses, current: 0, token, patience, wire: None, retries }
    }

    /// Sends a verb until it is answered.
    pub fn verb(&mut self, name: &str, agent: &str, request: &Value) -> Answer {
        let number = OPERATIONS.fetch_add(1, Ordering::Relaxed);
        let op = json!({ "id": format!("op_story_{}_{number}", std::process::id()), "request": "" });
        let body = json!({ "caller": { "agent": agent }, "op": op, "request": request }).to_string();
        let (path, asked) = (format!("/v1/verbs/{name}"), Instant::now());
        loop {
            match self.send(&path, &body) {
                Ok((503, _)) => {
                    self.retries.unavailable += 1;
                    thread::sleep(RETRY_AFTER);
                }
                Ok((status, said)) => return Answer { status, said, asked, told: Instant::now() },
                Err(error) => {
                    self.wire = None;
                    self.current += 1;
                    match error.kind() {
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => self.retries.timed_out += 1,
                        _ => self.retries.broken += 1,
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            }
            assert!(asked.elapsed() < GIVE_UP, "{name} was not answered in {:?}: {:?}", asked.elapsed(), self.retries);
        }
    }

    fn send(&mut self, path: &str, body: &str) -> std::io::Result<(u16, Value)> {
        if self.wire.is_none() {
            let address = &self.addresses[self.current % self.addresses.len()];
            self.wire = Some(Wire::connect(address, Some(self.patience))?);
        }
        let wire = self.wire.as_mut().expect("it was connected just now");
        wire.try_send("POST", path, &self.token, body)
    }
}

/// An acknowledged operation: its event, its task and the number of its fence.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    event: &'static str,
    task: String,
    fence: u64,
    asked: Instant,
    /// When the client was told.
    pub told: Instant,
}

impl Acknowledged {
    fn key(&self) -> (String, String, u64) {
        (self.event.to_owned(), self.task.clone(), self.fence)
    }
}

/// A task that was claimed.
#[derive(Clone, Debug)]
pub struct Hold {
    task: String,
    fence: u64,
    token: Value,
}

/// What workers were told.
#[derive(Default)]
pub struct Work {
    /// Claims, and how they ended.
    pub acknowledged: Vec<Acknowledged>,
    /// What the clients had to retry.
    pub retries: Retries,
    /// The longest time between a client's first attempt and its answer.
    pub longest_wait: Duration,
}

impl Work {
    /// Claims a task, if one is ready.
    pub fn claim(&mut self, client: &mut RetryingClient, agent: &str) -> Option<Hold> {
        let answer = client.verb("claim", agent, &json!({}));
        if answer.status == 404 {
            return None;
        }
        assert_eq!(answer.status, 200, "claim: {}", answer.said);
        let claim = &answer.said["outcome"]["claims"][0];
        let hold = Hold {
            task: claim["task"]["id"].as_str().unwrap().to_owned(),
            fence: claim["lease"]["fence"].as_u64().unwrap(),
            token: claim["lease"]["token"].clone(),
        };
        self.add("claim", &hold, &answer);
        Some(hold)
    }

    /// Finishes or releases a task.
    pub fn end(&mut self, client: &mut RetryingClient, agent: &str, hold: &Hold, done: bool) -> Answer {
        let (event, how) = match done {
            true => ("task.done", json!({ "done": { "no_change": "x" } })),
            false => ("task.released", json!("release")),
        };
        let end = json!({ "id": hold.task, "fence": hold.token, "how": how, "message": "x" });
        let answer = client.verb("finish", agent, &end);
        if answer.status == 200 {
            self.add(event, hold, &answer);
        }
        answer
    }

    fn add(&mut self, event: &'static str, Hold { task, fence, .. }: &Hold, answer: &Answer) {
        let Answer { asked, told, .. } = *answer;
        self.longest_wait = self.longest_wait.max(told - asked);
        self.acknowledged.push(Acknowledged { event, task: task.clone(), fence: *fence, asked, told });
    }

    /// This work and later work, as one.
    #[must_use]
    pub fn and(mut self, later: Self) -> Self {
        self.acknowledged.extend(later.acknowledged);
        self.longest_wait = self.longest_wait.max(later.longest_wait);
        for (all, more) in [
            (&mut self.retries.broken, later.retries.broken),
            (&mut self.retries.timed_out, later.retries.timed_out),
            (&mut self.retries.unavailable, later.retries.unavailable),
        ] {
            *all += more;
        }
        self
    }
}

/// Lets workers claim and finish while `trouble` is made. Each takes up a task that another has released now and then,
/// and every second one is impatient: it asks again while the server is still at work on its first attempt.
pub fn work_through(server: &FleetServer, token: &str, workers: usize, trouble: impl FnOnce()) -> Work {
    let patience = |number: usize| Duration::from_secs(if number.is_multiple_of(2) { 2 } else { 120 });
    let clients = (0..workers).map(|number| RetryingClient::new(server, token, patience(number))).collect();
    work_from(clients, |_| (), trouble)
}

/// Lets these clients claim and finish while `trouble` is made; the thread of each enters its place first.
pub fn work_from(mut clients: Vec<RetryingClient>, enter: impl Fn(usize) + Sync, trouble: impl FnOnce()) -> Work {
    let (all, over) = (Mutex::new(Work::default()), AtomicBool::new(false));
    thread::scope(|scope| {
        for (number, mut client) in clients.drain(..).enumerate() {
            let (all, over, enter) = (&all, &over, &enter);
            scope.spawn(move || {
                enter(number);
                let (mut work, agent) = (Work::default(), format!("worker-{number}"));
                while !over.load(Ordering::SeqCst) {
                    claim_and_end(&mut client, &agent, &mut work);
                }
                work.retries = client.retries;
                let mut all = all.lock().unwrap();
                *all = std::mem::take(&mut *all).and(work);
            });
        }
        // A panic here must not leave the workers at work for ever.
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(trouble));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = made {
            std::panic::resume_unwind(panic);
        }
    });
    all.into_inner().unwrap()
}

fn claim_and_end(client: &mut RetryingClient, agent: &str, work: &mut Work) {
    let Some(hold) = work.claim(client, agent) else { return plan(client, agent) };
    // It holds the task for a moment, so that a second holder would be seen.
    thread::sleep(Duration::from_millis(10));
    let answer = work.end(client, agent, &hold, !work.acknowledged.len().is_multiple_of(3));
    // Its fence is live: a refusal would be a lost write.
    assert_eq!(answer.status, 200, "finish of {hold:?}: {}", answer.said);
}

/// Plans more tasks.
fn plan(client: &mut RetryingClient, agent: &str) {
    let tasks: Vec<Value> = (0..PLANNED).map(|n| json!({ "name": format!("t{n}") })).collect();
    let source = json!({ "kind": "prompt", "text": "x" });
    let answer =
        client.verb("flow.new", agent, &json!({ "plan": { "title": "load", "tasks": tasks }, "source": source }));
    assert_eq!(answer.status, 200, "flow.new: {}", answer.said);
}

/// The claims in a server's history, and how they ended, in their order.
pub struct History {
    events: Vec<(String, String, u64)>,
}

impl History {
    /// Reads the log of a server and checks that it has no gap, has nothing twice, and gives each task to one holder at
    /// a time.
    pub fn of(server: &FleetServer, token: &str) -> Self {
        let mut client = RetryingClient::new(server, token, Duration::from_secs(60));
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let page = client.verb("log", "reader", &json!({ "after": after, "limit": 2_000 }));
            assert_eq!(page.status, 200, "{}", page.said);
            let page = page.said["outcome"].as_array().unwrap_or_else(|| panic!("{}", page.said)).clone();
            for event in &page {
                let seq = event["seq"].as_u64().unwrap();
                assert_eq!(seq, after + 1, "history has no gap");
                after = seq;
                let of = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                if let Some(fence) = event["detail"]["fence"].as_u64() {
                    events.push((of("verb"), of("entity"), fence));
                }
            }
            if page.is_empty() {
                break;
            }
        }
        let history = Self { events };
        history.check();
        history
    }

    fn check(&self) {
        let mut once = BTreeSet::new();
        let mut holds: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
        for event in &self.events {
            assert!(once.insert(event), "{event:?} happened twice");
            let (verb, task, fence) = event;
            let (last, held) = holds.entry(task).or_default();
            let in_turn = if verb == "claim" { !*held && fence > last } else { *held && fence == last };
            assert!(in_turn, "{event:?} came when fence {last} was {}", if *held { "live" } else { "ended" });
            (*last, *held) = (*fence, verb == "claim");
        }
    }

    /// Whether it has every operation that was acknowledged.
    pub fn has_all(&self, work: &Work) -> bool {
        let known: BTreeSet<_> = self.events.iter().cloned().collect();
        work.acknowledged.iter().all(|operation| known.contains(&operation.key()))
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Checks that every operation that was acknowledged until then is there, and that nothing is there that was not
    /// acknowledged: who asks until there is an answer knows all that was done. Returns how many later ones are lost.
    pub fn require(&self, work: &Work, until: Instant) -> usize {
        let known: BTreeSet<_> = self.events.iter().cloned().collect();
        let (mut told, mut lost_later) = (BTreeSet::new(), 0);
        for operation in &work.acknowledged {
            assert!(told.insert(operation.key()), "{operation:?} was acknowledged twice");
            if !known.contains(&operation.key()) {
                assert!(operation.told > until, "{operation:?} was acknowledged and is lost");
                lost_later += 1;
            }
        }
        let untold: Vec<_> = known.difference(&told).collect();
        assert!(untold.is_empty(), "{} in history that nobody was told: {:?}", untold.len(), &untold[..1]);
        lost_later
    }
}

/// Checks, by the clients' clock, that nobody was told of a claim while another still held the task.
pub fn require_one_holder_at_a_time(work: &Work) {
    let mut holds: BTreeMap<&str, Vec<(Instant, Option<Instant>)>> = BTreeMap::new();
    let mut ends: BTreeMap<(&str, u64), Instant> = BTreeMap::new();
    for Acknowledged { event, task, fence, asked, .. } in &work.acknowledged {
        if *event != "claim" {
            ends.insert((task, *fence), *asked);
        }
    }
    for Acknowledged { event, task, fence, told, .. } in &work.acknowledged {
        if *event == "claim" {
            holds.entry(task).or_default().push((*told, ends.get(&(task.as_str(), *fence)).copied()));
        }
    }
    for (task, mut holds) in holds {
        holds.sort_unstable();
        for pair in holds.windows(2) {
            let [(_, end), (next, _)] = pair else { continue };
            assert!(end.is_some_and(|end| end <= *next), "{task} had two holders at a time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two holders of one task, one after the other.
    fn work(base: Instant) -> Work {
        let operation = |event, fence, from, to| Acknowledged {
            event,
            task: "tk_1".to_owned(),
            fence,
            asked: base + Duration::from_secs(from),
            told: base + Duration::from_secs(to),
        };
        let acknowledged = vec![
            operation("claim", 1, 0, 1),
            operation("task.released", 1, 2, 5),
            operation("claim", 2, 3, 4),
            operation("task.done", 2, 6, 7),
        ];
        Work { acknowledged, ..Work::default() }
    }

    fn history(work: &Work) -> History {
        History { events: work.acknowledged.iter().map(Acknowledged::key).collect() }
    }

    #[test]
    fn what_was_told_and_is_there_passes() {
        let work = work(Instant::now());
        history(&work).check();
        assert_eq!(history(&work).require(&work, Instant::now() + Duration::from_secs(60)), 0);
        require_one_holder_at_a_time(&work);
    }

    #[test]
    #[should_panic(expected = "acknowledged and is lost")]
    fn a_lost_operation_is_found() {
        let work = work(Instant::now());
        let mut history = history(&work);
        history.events.pop();
        history.require(&work, Instant::now() + Duration::from_secs(60));
    }

    #[test]
    #[should_panic(expected = "nobody was told")]
    fn an_operation_that_was_done_twice_is_found() {
        let work = work(Instant::now());
        let mut history = history(&work);
        history.events.push(("claim".to_owned(), "tk_1".to_owned(), 3));
        history.require(&work, Instant::now() + Duration::from_secs(60));
    }

    #[test]
    #[should_panic(expected = "was live")]
    fn two_holders_in_history_are_found() {
        let mut history = history(&work(Instant::now()));
        history.events.remove(1);
        history.check();
    }

    #[test]
    #[should_panic(expected = "two holders")]
    fn two_holders_by_the_clients_clock_are_found() {
        let mut work = work(Instant::now());
        work.acknowledged[1].asked += Duration::from_secs(3);
        require_one_holder_at_a_time(&work);
    }
}
