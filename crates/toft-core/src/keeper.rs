//! The holder's half of a lease: when to renew it, and by when work under it must have stopped.
//!
//! Another agent can get the lease `ttl` after the store last renewed it. The store renews after the holder sent the
//! request, so a holder that counts from the moment of *sending* always stops in time, whether or not an answer
//! arrives:
//!
//! ```text
//! sent          sent + ttl/3                 soft             hard        sent + ttl
//!   |---- hold ------|---- renew, retry -------|--- SIGTERM -----|--- gone ----|  another may start
//!                                              |<----------- margin ---------->|
//! ```
//!
//! The margin is the grace period plus one second, but at least a quarter and at most a third of the ttl: it is long
//! enough to end a whole process tree, and leaves a third of the ttl for the answer to a renewal. SIGKILL is due one
//! second (for a small ttl: a third of the margin) before the lease can end, or once the grace period has passed,
//! whichever is earlier. With the default of 90 s and a grace period of 5 s that is SIGTERM after 67.5 s and SIGKILL
//! after 72.5 s; with 10 s, 6.7 s and 9 s.
//!
//! A [`Keeper`] has no clock. Callers pass the time in milliseconds of the holder's own monotonic clock, one that also
//! counts while a laptop sleeps.

use std::time::Duration;

/// A failed renewal is retried after this fraction of the ttl.
const RETRIES: u64 = 12;
/// Time that killed processes get to end.
const KILL: u64 = 1_000;

/// Decides for one lease when to renew it and when work under it must stop.
///
/// States: holding ([`Duty::Wait`]), renewing ([`Duty::Renew`] until the answer), must stop ([`Duty::Terminate`], then
/// [`Duty::Kill`]), lost ([`Duty::Kill`]). The last two are final: a late answer does not restore the lease, because
/// the work under it was already asked to end.
#[derive(Clone, Debug)]
pub struct Keeper {
    ttl: u64,
    margin: u64,
    grace: u64,
    /// When the newest acknowledged renewal, or the claim, was sent.
    kept: u64,
    /// When the next renewal is due.
    next: u64,
    /// Number of renewals sent and not answered.
    open: u32,
    stop: Option<Stop>,
}

/// A renewal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the answer is reported with it"]
pub struct Renewal {
    sent: u64,
}

/// When to send which signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// SIGTERM.
    pub soft: u64,
    /// SIGKILL.
    pub hard: u64,
}

/// What the holder must do at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Nothing before this time.
    Wait(u64),
    /// Send a renewal.
    Renew,
    /// Ask the work to end (SIGTERM); kill the remaining processes at this time.
    Terminate(u64),
    /// Kill the work.
    Kill,
}

impl Keeper {
    /// A hold on a lease of `ttl`, claimed by a request sent at `sent`; its work ends within `grace` when told to.
    #[must_use]
    pub fn new(ttl: Duration, grace: Duration, sent: u64) -> Self {
        let (ttl, grace) = (whole_millis(ttl), whole_millis(grace));
        let margin = grace.saturating_add(KILL).clamp(ttl / 4, ttl / 3);
        Self { ttl, margin, grace, kept: sent, next: sent.saturating_add(ttl / 3), open: 0, stop: None }
    }

    /// Returns the duty at `now`.
    pub fn look(&mut self, now: u64) -> Duty {
        let stop = self.deadline();
        if now >= stop.hard {
            self.stop = Some(stop);
            Duty::Kill
        } else if now >= stop.soft {
            self.stop = Some(stop);
            Duty::Terminate(stop.hard)
        } else if self.open == 0 && now >= self.next {
            Duty::Renew
        } else if self.open == 0 {
            Duty::Wait(self.next.min(stop.soft))
        } else {
            Duty::Wait(stop.soft)
        }
    }

    /// When work must stop unless a renewal is acknowledged first.
    #[must_use]
    pub fn deadline(&self) -> Stop {
        self.stop.unwrap_or_else(|| {
            let soft = self.kept.saturating_add(self.ttl - self.margin);
            let hard = soft.saturating_add(self.grace.min(self.margin - KILL.min(self.margin / 3)));
            Stop { soft, hard }
        })
    }

    /// Records that a renewal is sent at `now`.
    pub fn send(&mut self, now: u64) -> Renewal {
        self.open += 1;
        Renewal { sent: now }
    }

    /// Records that the store renewed the lease.
    pub fn acknowledge(&mut self, renewal: Renewal) {
        self.open = self.open.saturating_sub(1);
        self.kept = self.kept.max(renewal.sent);
        self.next = self.kept.saturating_add(self.ttl / 3);
    }

    /// Records that the renewal was not answered and schedules a retry. The store may have renewed the lease; nothing
    /// relies on it.
    pub fn fail(&mut self, _renewal: Renewal, now: u64) {
        self.open = self.open.saturating_sub(1);
        self.next = now.saturating_add((self.ttl / RETRIES).max(1));
    }

    /// Records that the lease has ended according to the store: another agent may already work on the task.
    pub fn lose(&mut self, now: u64) {
        self.stop = Some(Stop { soft: now, hard: now });
    }

    /// Whether work was told to end, by a deadline or because the hold is over.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// How long ago, at `now`, the hold was last known to stand.
    #[must_use]
    pub fn unrenewed(&self, now: u64) -> Duration {
        Duration::from_millis(now.saturating_sub(self.kept))
    }
}

fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keeper(ttl: u64, grace: u64) -> Keeper {
        Keeper::new(Duration::from_millis(ttl), Duration::from_millis(grace), 1_000)
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_its_time() {
        let mut keeper = keeper(90_000, 5_000);
        assert_eq!(keeper.look(1_000), Duty::Wait(31_000));
        assert_eq!(keeper.look(31_000), Duty::Renew);
        let renewal = keeper.send(31_000);
        assert_eq!(keeper.look(31_001), Duty::Wait(68_500), "one at a time");
        keeper.acknowledge(renewal);
        assert_eq!(keeper.look(40_000), Duty::Wait(61_000), "counted from when it was sent");
        let renewal = keeper.send(61_000);
        keeper.fail(renewal, 62_000);
        assert_eq!(keeper.look(62_000), Duty::Wait(69_500), "a failed one is repeated sooner");
    }

    #[test]
    fn work_is_told_to_end_and_then_killed_before_the_lease_can_end() {
        for (ttl, grace, soft, hard) in [
            (90_000, 5_000, 67_500, 72_500),
            (60_000, 20_000, 40_000, 59_000),
            (10_000, 5_000, 6_667, 9_000),
            (10_000, 500, 7_500, 8_000),
            (5_000, 5_000, 3_334, 4_445),
            (1_000, 5_000, 667, 889),
        ] {
            let mut keeper = keeper(ttl, grace);
            let renewal = keeper.send(1_000 + ttl / 3);
            assert_eq!(keeper.look(1_000 + soft - 1), Duty::Wait(1_000 + soft), "{ttl}");
            assert_eq!(keeper.look(1_000 + soft), Duty::Terminate(1_000 + hard), "{ttl}");
            keeper.acknowledge(renewal);
            assert_eq!(keeper.look(1_000 + hard), Duty::Kill, "an answer that comes too late changes nothing");
        }
    }

    #[test]
    fn a_hold_that_is_over_stops_at_once() {
        let mut keeper = keeper(90_000, 5_000);
        keeper.lose(2_000);
        assert_eq!(keeper.look(2_000), Duty::Kill);
        assert!(keeper.stopped());
    }

    #[test]
    fn after_a_sleep_the_work_is_killed_before_anything_else() {
        let mut keeper = keeper(90_000, 5_000);
        assert_eq!(keeper.look(1_000_000), Duty::Kill);
    }

    proptest! {
        /// The store renews some time between sending and answering, and can give the lease to another agent `ttl`
        /// later. Whichever messages are lost, late or out of order, the work is killed before that.
        #[test]
        fn whatever_is_lost_or_late_work_is_killed_before_the_lease_can_be_given_away(
            ttl in 100u64..120_000,
            grace in 0u64..60_000,
            steps in prop::collection::vec((0u64..5_000, 0u8..6, 0u64..100_000), 1..200),
        ) {
            let mut keeper = keeper(ttl, grace);
            let mut now = 1_000;
            // Since when the lease surely stands, as the store sees it: the earliest it can have been renewed.
            let mut renewed = 1_000;
            let mut open: Vec<(Renewal, Option<u64>)> = Vec::new();
            let mut killed = false;
            for (pass, event, delay) in steps {
                now += pass;
                match keeper.look(now) {
                    Duty::Renew if !killed => {
                        let reaches_the_store = event != 0;
                        let at = now + delay % (ttl / 2 + 1);
                        if reaches_the_store && at < renewed + ttl {
                            renewed = renewed.max(at);
                        }
                        open.push((keeper.send(now), (reaches_the_store && at < renewed + ttl).then_some(at)));
                    }
                    Duty::Kill => killed = true,
                    Duty::Terminate(hard) => prop_assert!(hard < renewed + ttl && now < hard),
                    Duty::Wait(until) => prop_assert!(until > now),
                    Duty::Renew => prop_assert!(false, "a stopped hold is renewed"),
                }
                prop_assert!(killed || keeper.deadline().hard < renewed + ttl, "{keeper:?} {renewed}");
                prop_assert!(!killed || keeper.look(now) == Duty::Kill, "a hold came back");
                if !open.is_empty() && event >= 2 {
                    let index = delay as usize % open.len();
                    let (renewal, done) = open[index];
                    match done {
                        Some(at) if event >= 4 && at <= now => {
                            let _ = open.remove(index);
                            keeper.acknowledge(renewal);
                        }
                        _ if event == 3 => {
                            let _ = open.remove(index);
                            keeper.fail(renewal, now);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
