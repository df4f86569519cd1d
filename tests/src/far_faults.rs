//! Faults that are put in while far workers work.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use toft_cluster::Cluster;

use crate::{
    FleetServer, Home,
    far_network::{Link, Place},
    until,
    workspaces::Dice,
};

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
}

/// What is put in at a place, in turn.
const AT_A_PLACE: [Kind; 6] =
    [Kind::Partition, Kind::AnswersLost, Kind::PacketLoss, Kind::AnswersBlocked, Kind::Delay, Kind::RequestsBlocked];

/// The faults of a run.
pub struct Faults {
    until: Instant,
    seed: u64,
    put_in: Mutex<BTreeMap<Kind, usize>>,
}

/// Rolls a time from `from` up to `to` milliseconds.
fn roll_time(dice: &mut Dice, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + dice.below(to - from))
}

impl Faults {
    /// Faults that are put in from now on, for `length`.
    pub fn new(seed: u64, length: Duration) -> Self {
        Self { until: Instant::now() + length, seed, put_in: Mutex::default() }
    }

    /// How many faults of each kind there were.
    pub fn into_counts(self) -> BTreeMap<Kind, usize> {
        self.put_in.into_inner().expect("no thread panicked with the lock")
    }

    fn put_in(&self, kind: Kind, fault: impl FnOnce()) {
        fault();
        *self.put_in.lock().expect("no thread panicked with the lock").entry(kind).or_default() += 1;
    }

    /// Sleeps before the next fault; returns false if there is no time for one.
    fn pause(&self, time: Duration) -> bool {
        let next = Instant::now() + time;
        thread::sleep(next.min(self.until).saturating_duration_since(Instant::now()));
        next < self.until
    }

    fn dice(&self, number: u64) -> Dice {
        Dice::new(self.seed.wrapping_add(number.wrapping_mul(7_919)))
    }

    /// Kills PostgreSQL, and sessions of it.
    pub fn of_the_database(&self, cluster: &mut Cluster) {
        let mut dice = self.dice(1);
        for turn in 0.. {
            if !self.pause(roll_time(&mut dice, 2_000, 5_000)) {
                return;
            }
            if turn % 2 == 0 {
                let down = roll_time(&mut dice, 50, 1_000);
                self.put_in(Kind::DatabaseKilled, || {
                    cluster.kill_server();
                    thread::sleep(down);
                    cluster.restart();
                });
            } else {
                self.put_in(Kind::SessionKilled, || {
                    until(20, "a session is there to be killed", || cluster.kill_a_backend());
                    // PostgreSQL takes a moment to see it, and ends the other sessions then.
                    thread::sleep(Duration::from_millis(200));
                    cluster.wait_until_ready();
                });
            }
        }
    }

    /// Kills a server and starts it again at its address.
    pub fn of_a_server(&self, home: &Home, store: &str, server: &mut FleetServer, number: u64) {
        let mut dice = self.dice(2 + number);
        let address = server.url.trim_start_matches("http://").to_owned();
        while self.pause(roll_time(&mut dice, 3_000, 9_000)) {
            let down = roll_time(&mut dice, 50, 1_500);
            self.put_in(Kind::ServerKilled, || {
                server.kill();
                thread::sleep(down);
                *server = FleetServer::listen(home, store, &address, &["--hold-from", "0"]);
            });
        }
    }

    /// Breaks, thins out and slows down the link of a place.
    pub fn of_a_place(&self, place: &Place, number: usize) {
        let mut dice = self.dice(10 + number as u64);
        let usual = roll_time(&mut dice, 1, 8);
        place.delay(usual);
        for turn in number.. {
            if !self.pause(roll_time(&mut dice, 1_000, 4_500)) {
                return;
            }
            let kind = AT_A_PLACE[turn % AT_A_PLACE.len()];
            let time = roll_time(&mut dice, 200, 2_500);
            let link = match kind {
                Kind::Partition => Link::Cut,
                Kind::AnswersBlocked => Link::LosesAnswers,
                Kind::RequestsBlocked => Link::LosesRequests,
                Kind::PacketLoss => Link::Lossy(roll_time(&mut dice, 5, 30).as_millis() as u8),
                _ => Link::Whole,
            };
            self.put_in(kind, || match kind {
                Kind::Delay => {
                    place.delay(roll_time(&mut dice, 50, 250));
                    thread::sleep(time);
                    place.delay(usual);
                }
                Kind::AnswersLost => {
                    place.lose_answers(1 + dice.below(8));
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
}
