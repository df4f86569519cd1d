//! Faults that are put in while far workers work, with the time of each.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    sync::{Mutex, OnceLock, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use toft_cluster::Cluster;

use crate::{
    FleetServer, Home,
    far_network::{Link, Place},
    far_work::{Dice, Shift},
};

/// A machine that does not run a ready thread, or write a page to its disk, for this long counts as stalled.
const STALL: Duration = Duration::from_millis(300);

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// PostgreSQL and all its sessions were killed.
    DatabaseKilled,
    /// A session of PostgreSQL was killed, so PostgreSQL ended all others and recovered.
    SessionKilled,
    /// A toft server was killed.
    ServerKilled,
    /// Nothing went through a link.
    Partition,
    /// No answer went through a link.
    AnswersBlocked,
    /// No request went through a link.
    RequestsBlocked,
    /// A link lost packets.
    PacketLoss,
    /// A link was slow.
    Delay,
    /// A few answers got lost after they were sent.
    AnswersLost,
    /// Not put in: all workers began at once.
    Rush,
    /// Not put in: the machine was too busy to run a thread or to write to its disk.
    Stall,
}

/// What is put in at a place, in turn.
const AT_A_PLACE: [Kind; 6] =
    [Kind::Partition, Kind::AnswersLost, Kind::PacketLoss, Kind::AnswersBlocked, Kind::Delay, Kind::RequestsBlocked];

/// One fault; times are nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What was broken.
    pub kind: Kind,
    /// The place whose workers it hits; all of them if none is named.
    pub place: Option<usize>,
    /// When it began.
    pub begin: u64,
    /// When it was over.
    pub end: u64,
}

impl Fault {
    /// Whether the test put it in.
    pub fn is_put_in(&self) -> bool {
        !matches!(self.kind, Kind::Rush | Kind::Stall)
    }

    /// How long it and a wait at this place overlap, if they do.
    pub fn overlap(&self, place: usize, begin: u64, end: u64) -> Option<Duration> {
        let here = self.place.is_none_or(|its| its == place);
        let (from, to) = (self.begin.max(begin), self.end.min(end));
        (here && from <= to).then(|| Duration::from_nanos(to - from))
    }
}

/// All faults of a run.
pub struct Faults<'a> {
    shift: &'a Shift,
    until: OnceLock<Instant>,
    all: Mutex<Vec<Fault>>,
}

impl<'a> Faults<'a> {
    /// None yet.
    pub fn new(shift: &'a Shift) -> Self {
        Self { shift, until: OnceLock::new(), all: Mutex::default() }
    }

    /// Waits until each worker had its first answer. All of them ask at once, so that is how long the servers take for as
    /// many calls as can wait. From then on faults are put in for `length`.
    pub fn begin(&self, workers: usize, length: Duration) -> Duration {
        let begin = self.shift.now();
        while self.shift.begun.load(Ordering::SeqCst) < workers && !self.shift.is_over() {
            thread::sleep(Duration::from_millis(5));
        }
        let end = self.shift.now();
        self.note(Fault { kind: Kind::Rush, place: None, begin, end });
        self.until.get_or_init(|| Instant::now() + length);
        Duration::from_nanos(end - begin)
    }

    fn until(&self) -> Instant {
        *self.until.get_or_init(Instant::now)
    }

    /// All of them, in the order in which they ended.
    pub fn into_all(self) -> Vec<Fault> {
        self.all.into_inner().expect("no thread panicked with the lock")
    }

    fn put_in(&self, kind: Kind, place: Option<usize>, fault: impl FnOnce()) {
        let begin = self.shift.now();
        fault();
        self.note(Fault { kind, place, begin, end: self.shift.now() });
    }

    fn note(&self, fault: Fault) {
        self.all.lock().expect("no thread panicked with the lock").push(fault);
    }

    /// Sleeps before the next fault; returns false if there is no time for one.
    fn pause(&self, time: Duration) -> bool {
        let next = Instant::now() + time;
        while Instant::now() < next.min(self.until()) && !self.shift.is_over() {
            thread::sleep(Duration::from_millis(20));
        }
        next < self.until() && !self.shift.is_over()
    }

    fn dice(&self, number: u64) -> Dice {
        Dice(self.shift.seed.wrapping_add(number.wrapping_mul(7_919)))
    }

    /// Kills PostgreSQL, and sessions of it.
    pub fn of_the_database(&self, cluster: &mut Cluster) {
        let mut dice = self.dice(1);
        for turn in 0.. {
            if !self.pause(dice.time(2_000, 5_000)) {
                return;
            }
            if turn % 2 == 0 {
                let down = dice.time(50, 1_000);
                self.put_in(Kind::DatabaseKilled, None, || {
                    cluster.kill_server();
                    thread::sleep(down);
                    cluster.restart();
                });
            } else {
                let begin = self.shift.now();
                if cluster.kill_a_backend() {
                    // PostgreSQL takes a moment to see it, and ends the other sessions then.
                    thread::sleep(Duration::from_millis(200));
                    cluster.wait_until_ready();
                    self.note(Fault { kind: Kind::SessionKilled, place: None, begin, end: self.shift.now() });
                }
            }
        }
    }

    /// Kills a server and starts it again at its address.
    pub fn of_a_server(&self, home: &Home, store: &str, mut server: FleetServer, number: u64) -> FleetServer {
        let mut dice = self.dice(2 + number);
        let address = server.url.trim_start_matches("http://").to_owned();
        while self.pause(dice.time(3_000, 9_000)) {
            let down = dice.time(50, 1_500);
            self.put_in(Kind::ServerKilled, None, || {
                server.kill();
                thread::sleep(down);
                server = FleetServer::listen(home, store, &address, &["--hold-from", "0"]);
            });
        }
        server
    }

    /// Breaks, thins out and slows down the link of a place.
    pub fn of_a_place(&self, place: &Place, number: usize) {
        let mut dice = self.dice(10 + number as u64);
        let usual = dice.time(1, 8);
        place.delay(usual);
        for turn in number.. {
            if !self.pause(dice.time(1_000, 4_500)) {
                return;
            }
            let kind = AT_A_PLACE[turn % AT_A_PLACE.len()];
            let time = dice.time(200, 2_500);
            let link = match kind {
                Kind::Partition => Link::Cut,
                Kind::AnswersBlocked => Link::LosesAnswers,
                Kind::RequestsBlocked => Link::LosesRequests,
                Kind::PacketLoss => Link::Lossy(dice.time(5, 30).as_millis() as u8),
                _ => Link::Whole,
            };
            self.put_in(kind, Some(number), || match kind {
                Kind::Delay => {
                    place.delay(dice.time(50, 250));
                    thread::sleep(time);
                    place.delay(usual);
                }
                Kind::AnswersLost => {
                    place.lose_answers(1 + dice.roll(8));
                    let begun = Instant::now();
                    while place.answers_to_lose() > 0 && begun.elapsed() < time {
                        thread::sleep(Duration::from_millis(5));
                    }
                    place.lose_answers(0);
                }
                _ => {
                    place.set(link).expect("the link can be changed");
                    thread::sleep(time);
                    place.set(Link::Whole).expect("the link can be mended");
                }
            });
        }
    }

    /// Notes when the machine itself stalls, until the shift is over.
    pub fn of_the_machine(&self, home: &Home) {
        let probe = home.path().join("probe");
        while !self.shift.is_over() {
            let begin = self.shift.now();
            let written = fs::File::create(&probe).and_then(|mut file| {
                file.write_all(&[1; 512])?;
                file.sync_all()
            });
            written.expect("the disk can be written");
            thread::sleep(Duration::from_millis(25));
            let end = self.shift.now();
            if end - begin > STALL.as_nanos() as u64 {
                self.note(Fault { kind: Kind::Stall, place: None, begin, end });
            }
        }
    }
}

/// How many faults of each kind there were.
pub fn count(faults: &[Fault]) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for fault in faults {
        *counts.entry(fault.kind).or_default() += 1;
    }
    counts
}

/// How much of a run of this length had no fault that hit this place, in percent.
pub fn calm(faults: &[Fault], place: usize, length: Duration) -> u64 {
    let mut spans: Vec<_> = faults.iter().filter(|fault| fault.place.is_none_or(|its| its == place)).collect();
    spans.sort_by_key(|fault| fault.begin);
    let (mut busy, mut reached) = (0, 0);
    for fault in spans {
        busy += fault.end.saturating_sub(fault.begin.max(reached));
        reached = reached.max(fault.end);
    }
    100 - (u128::from(busy) * 100 / length.as_nanos().max(1)).min(100) as u64
}
