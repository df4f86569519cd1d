//! The runner: starts a process for each slot, forwards events, and ends the slots.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use toft_session::{
    error::{Error, io as failed},
    keep::clock,
    processes,
    session::Session,
};

use super::{Rules, SlotEvent, slot::DRAIN, supervisor};

/// Delay before a killed slot is restarted, doubled each time up to the maximum.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// A slot that ran for this long resets the delay.
const WELL: Duration = Duration::from_secs(60);

/// A slot without a heartbeat for this long, or a third of its lease, is killed.
const SILENT: Duration = Duration::from_secs(3);
/// A slot without a heartbeat for this long is killed when its lease is about to end.
const SUSPECT: Duration = Duration::from_millis(1_500);
/// How long a slot that was asked to stop has after the grace period to release its task.
const LAST_ACTS: Duration = Duration::from_secs(5);
/// How often slots are checked.
const LOOK: Duration = Duration::from_millis(100);

/// The variable that names the slot of a process.
pub const SLOT: &str = "TOFT_RUN_SLOT";

/// An order to a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Claim nothing new, and end when everything that runs has ended.
    Drain,
    /// End what runs, release it, and exit.
    Stop,
}

/// An event of a runner.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerEvent {
    /// An event of a slot.
    Slot(usize, SlotEvent),
    /// A slot was killed, and is restarted.
    SlotRestarted(usize),
    /// A slot did not respond, and was killed with everything that it had started.
    SlotUnresponsive(usize),
    /// A slot has ended; with the reason if it could not continue.
    SlotEnded(usize, Option<String>),
    /// An order was received.
    OrderReceived(Order),
}

/// The slots of one runner.
pub struct Fleet {
    program: PathBuf,
    args: Vec<OsString>,
    names: Vec<String>,
    silence: Duration,
    grace: Duration,
    /// Locks on the names, held for as long as they are used.
    _taken: Vec<fs::File>,
}

enum FleetEvent {
    Said(usize, SlotEvent),
    Closed(usize),
    Order(Order),
}

struct Post {
    child: Option<Child>,
    since: Instant,
    rest: Duration,
    again: Option<Instant>,
    complaint: Option<thread::JoinHandle<String>>,
    /// Time without a heartbeat, while this process was running.
    silent: Duration,
    /// When the work of the slot must have ended, on this machine's clock.
    until: Option<u64>,
    /// It was asked to stop, and must have ended by this time.
    stop_by: Option<Instant>,
}

impl Fleet {
    /// `count` slots, each with a name of its own in all these repositories on this machine; started as `program` with
    /// `args` and its name. They are named after the agent of the first.
    pub fn new(
        sessions: &[&Session],
        program: PathBuf,
        args: Vec<OsString>,
        count: usize,
        rules: &Rules,
    ) -> Result<Self, Error> {
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        let agent = sessions.first().map(|session| session.located().agent.clone()).unwrap_or_default();
        let mut dirs = Vec::new();
        for session in sessions {
            let checkout = session.located().checkout.as_ref().ok_or_else(nowhere)?;
            let dir = checkout.state_dir().join("run");
            fs::create_dir_all(&dir).map_err(failed("make", &dir))?;
            dirs.push(dir);
        }
        let (mut names, mut taken) = (Vec::new(), Vec::new());
        for n in 1.. {
            if names.len() == count {
                break;
            }
            let name = format!("{agent}-{n}");
            let locks = dirs.iter().map(|dir| lock(&dir.join(format!("{name}.lock"))));
            // If another runner has that name in one of them, it is not free.
            if let Some(locks) = locks.collect::<Result<Option<Vec<fs::File>>, Error>>()? {
                names.push(name);
                taken.extend(locks);
            }
        }
        let (silence, grace) = (SILENT.max(rules.ttl / 3), rules.grace);
        Ok(Self { program, args, names, silence, grace, _taken: taken })
    }

    /// The names of the slots.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Runs until every slot has ended; returns whether one of them could not continue.
    pub fn run(self, orders: Receiver<Order>, mut report: impl FnMut(RunnerEvent)) -> Result<bool, Error> {
        processes::adopt_orphans();
        let (events, heard) = mpsc::channel();
        let forward = events.clone();
        thread::spawn(move || orders.into_iter().all(|order| forward.send(FleetEvent::Order(order)).is_ok()));
        let mut posts = Vec::new();
        for index in 0..self.names.len() {
            posts.push(self.start(index, AGAIN, &events)?);
        }
        let (mut draining, mut troubled, mut orphans) = (false, false, false);
        let mut looked = Instant::now();
        while posts.iter().any(|post| post.child.is_some() || post.again.is_some()) {
            match heard.recv_timeout(LOOK) {
                Ok(FleetEvent::Said(index, told)) => {
                    posts[index].silent = Duration::ZERO;
                    match told {
                        SlotEvent::Alive { until } => posts[index].until = until,
                        told => report(RunnerEvent::Slot(index, told)),
                    }
                }
                Ok(FleetEvent::Order(order)) => {
                    draining = true;
                    posts.iter_mut().for_each(|post| post.obey(order, self.grace));
                    report(RunnerEvent::OrderReceived(order));
                }
                Ok(FleetEvent::Closed(index)) => match posts[index].ended(&mut orphans)? {
                    SlotEnd::Well => report(RunnerEvent::SlotEnded(index, None)),
                    SlotEnd::Badly(why) => {
                        troubled = true;
                        report(RunnerEvent::SlotEnded(index, Some(why)));
                    }
                    SlotEnd::Killed if draining => report(RunnerEvent::SlotEnded(index, None)),
                    SlotEnd::Killed => {
                        posts[index].again = Some(Instant::now() + posts[index].rest);
                        report(RunnerEvent::SlotRestarted(index));
                    }
                },
                Err(_) => {}
            }
            // If this process was stopped itself, slots had nobody to tell.
            let passed = looked.elapsed().min(2 * LOOK);
            looked = Instant::now();
            for (index, post) in posts.iter_mut().enumerate() {
                if post.kill_if_silent(passed, self.silence) {
                    report(RunnerEvent::SlotUnresponsive(index));
                }
            }
            if orphans {
                // What a killed slot left behind is this process's own child now.
                let known: Vec<u32> = posts.iter().filter_map(|post| post.child.as_ref().map(Child::id)).collect();
                orphans = processes::end_children_but(&known);
            }
            for (index, post) in posts.iter_mut().enumerate() {
                if post.again.is_some_and(|when| when <= Instant::now() || draining) {
                    post.again = None;
                    if !draining {
                        *post = self.start(index, post.rest, &events)?;
                    }
                }
            }
        }
        supervisor::end_all(&[]);
        Ok(troubled)
    }

    #[expect(clippy::disallowed_methods, reason = "a runner starts itself again for each slot")]
    fn start(&self, index: usize, rest: Duration, events: &Sender<FleetEvent>) -> Result<Post, Error> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env(SLOT, &self.names[index]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What is typed at the terminal is for the runner.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(failed("start", &self.program))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let events = events.clone();
        thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| io::BufReader::new(out).lines().map_while(Result::ok)) {
                if let Ok(told) = serde_json::from_str(&line)
                    && events.send(FleetEvent::Said(index, told)).is_err()
                {
                    return;
                }
            }
            // Nobody may be listening any more.
            let _ = events.send(FleetEvent::Closed(index));
        });
        let complaint = thread::spawn(move || {
            let lines = err.into_iter().flat_map(|err| io::BufReader::new(err).lines().map_while(Result::ok));
            lines.take(50).collect::<Vec<_>>().join("\n")
        });
        Ok(Post {
            child: Some(child),
            since: Instant::now(),
            rest,
            again: None,
            complaint: Some(complaint),
            silent: Duration::ZERO,
            until: None,
            stop_by: None,
        })
    }
}

/// Locks a name, if no other runner has it.
fn lock(path: &Path) -> Result<Option<fs::File>, Error> {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(failed("write", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(cause)) => Err(failed("lock", path)(cause)),
    }
}

enum SlotEnd {
    Well,
    Badly(String),
    Killed,
}

impl Post {
    fn obey(&mut self, order: Order, grace: Duration) {
        let Some(child) = &mut self.child else { return };
        match order {
            Order::Drain => {
                // One that is gone needs no telling.
                let _ = child.stdin.as_mut().map(|stdin| writeln!(stdin, "{DRAIN}"));
            }
            Order::Stop => {
                drop(child.stdin.take());
                // Whoever says it again does not want to wait.
                let last_acts = if self.silent >= SUSPECT { Duration::ZERO } else { LAST_ACTS };
                self.stop_by = Some(match self.stop_by {
                    Some(_) => Instant::now(),
                    None => Instant::now() + grace + last_acts,
                });
            }
        }
    }

    /// Kills a slot that does not respond, with all its descendants.
    fn kill_if_silent(&mut self, passed: Duration, silence: Duration) -> bool {
        let Some(child) = &self.child else { return false };
        self.silent += passed;
        let fenced = self.silent >= SUSPECT && self.until.is_some_and(|until| clock() >= until);
        let stopped = self.stop_by.is_some_and(|by| by <= Instant::now());
        if self.silent < silence && !fenced && !stopped {
            return false;
        }
        processes::kill_tree(child.id());
        // Its end is heard of when its pipe closes.
        (self.silent, self.until, self.stop_by) = (Duration::ZERO, None, None);
        true
    }

    fn ended(&mut self, orphans: &mut bool) -> Result<SlotEnd, Error> {
        let Some(mut child) = self.child.take() else { return Ok(SlotEnd::Well) };
        let status = child.wait().map_err(failed("wait for", Path::new("a slot")))?;
        let said = self.complaint.take().and_then(|complaint| complaint.join().ok()).unwrap_or_default();
        self.rest = if self.since.elapsed() >= WELL { AGAIN } else { (self.rest * 2).min(LONGEST) };
        Ok(match status.code() {
            Some(0) => SlotEnd::Well,
            Some(_) => SlotEnd::Badly(said),
            None => {
                *orphans = true;
                SlotEnd::Killed
            }
        })
    }
}
