//! Leases: an agent's exclusive, expiring, fenced hold on one task.
//!
//! Decides whether a lease is still valid. Leases end by clock, so a crashed agent frees its task without help. A live
//! process on this host keeps its lease up to a cap, and a dead one loses it as soon as every process that it started
//! has ended too.
//!
//! A lease expires only on a clock that cannot step: the monotonic clock of the machine that renewed it, or that of a
//! machine that has watched it since without seeing a renewal. The wall clock only determines when to check.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    id::{AgentId, LeaseId, RepositoryId, TaskId, WorkflowId},
    schema::JsonSchema,
    time::{Now, Tick, Timestamp},
};

/// Interval between checks of a lease with a known process on this machine.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Minimum interval between checks of a lease with a process.
const SOONEST: Duration = Duration::from_millis(100);
/// Interval between checks of a lease that other machines watch.
const WATCHED: Duration = Duration::from_secs(1);
/// Maximum number of machines that watch one lease at a time.
const WATCHERS: usize = 64;

/// The one live lease on a task. Ended leases remain as attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub task: TaskId,
    /// The task's workflow.
    pub workflow: WorkflowId,
    /// The task's repository.
    pub repository: Option<RepositoryId>,
    /// The agent that holds it.
    pub agent: AgentId,
    /// The fence, which every write of the holder must name.
    pub fence: Fence,
    pub acquired: Timestamp,
    /// How long it lasts after each renewal.
    pub ttl: Duration,
    /// How long a live but silent process may keep it after its last renewal.
    pub cap: Duration,
    /// Wall clock of the last renewal.
    pub renewed: Timestamp,
    /// The last renewal on the monotonic clock of the machine that renewed.
    pub renewed_tick: Tick,
    /// Since when other machines have watched it without seeing a renewal, each on its own monotonic clock.
    pub seen: Vec<Tick>,
    /// When, on the wall clock, the next check is due. Renewals do not change it, so a heartbeat updates no index.
    pub check_at: i64,
    /// The process that holds it, if there is one to watch.
    pub holder: Option<Holder>,
}

impl Lease {
    /// When it ends unless renewed, for people.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.renewed.plus(self.ttl)
    }

    /// Decides whether the lease is still valid.
    pub fn standing(&self, now: &Now, processes: &dyn Processes) -> LeaseStatus {
        if self.is_abandoned(processes) {
            return LeaseStatus::Lost(Lost::ProcessGone);
        }
        let alive = self.holder.as_ref().map(|holder| processes.liveness(holder));
        match self.silence(&now.tick) {
            // Another machine renewed it last, and this one has not watched it yet.
            None => LeaseStatus::Live,
            Some(silent) if silent < self.ttl || (alive == Some(Liveness::Alive) && silent < self.cap) => {
                LeaseStatus::Live
            }
            Some(_) => LeaseStatus::Lost(Lost::Expired),
        }
    }

    /// Whether the process that holds it, and every process that was started under it, has ended.
    pub fn is_abandoned(&self, processes: &dyn Processes) -> bool {
        let dead = self.holder.as_ref().is_some_and(|holder| processes.liveness(holder) == Liveness::Dead);
        dead && !processes.attempts().contains(self.fence.id.as_str())
    }

    /// Time since the last renewal on the clock of this machine; absent if this machine cannot know it.
    fn silence(&self, tick: &Tick) -> Option<Duration> {
        let same = |known: &&Tick| known.epoch == tick.epoch;
        let since = Some(&self.renewed_tick).filter(same).or_else(|| self.seen.iter().find(same));
        since.map(|since| Duration::from_millis(tick.ms.saturating_sub(since.ms).max(0) as u64))
    }

    /// Is a look due?
    #[must_use]
    pub fn due(&self, now: &Now) -> bool {
        self.check_at <= now.wall.0
    }

    /// The same lease, renewed now.
    #[must_use]
    pub fn renew(mut self, now: &Now, ttl: Option<Duration>) -> Self {
        self.ttl = ttl.unwrap_or(self.ttl);
        self.cap = self.cap.max(self.ttl);
        self.renewed = now.wall;
        self.renewed_tick = now.tick.clone();
        self.seen.clear();
        // Usually the next look stays where it was; it moves only if it would come too late.
        if self.check_at > now.wall.plus(self.ttl).0 {
            self.check_at = self.next_check(now);
        }
        self
    }

    /// The same lease after a look that found it standing: when to look next, and, if it seems silent and another machine
    /// renewed it last, that this machine watches it from now on.
    #[must_use]
    pub fn examined(mut self, now: &Now) -> Self {
        if self.begins_watch(now) {
            // Those that have watched longest free it first: the newest gives way.
            self.seen.truncate(WATCHERS - 1);
            self.seen.push(now.tick.clone());
        }
        self.check_at = self.next_check(now);
        self
    }

    /// Whether this machine should watch it from now on: another renewed it last, and it seems silent.
    #[must_use]
    pub fn begins_watch(&self, now: &Now) -> bool {
        // A renewal in the future was made on a wall clock that was ahead: how long ago it was cannot be told.
        let seems_silent = now.wall.since(self.renewed) >= self.ttl / 2 || self.renewed > now.wall;
        self.silence(&now.tick).is_none() && seems_silent
    }

    /// When to look at it next: soon if a process can be watched, else when it would end, or when another machine should
    /// begin to watch it.
    #[must_use]
    pub fn next_check(&self, now: &Now) -> i64 {
        let half = self.ttl / 2;
        let left = match self.silence(&now.tick) {
            Some(silent) if silent < half => half - silent,
            Some(silent) => self.ttl.saturating_sub(silent),
            None => half.saturating_sub(now.wall.since(self.renewed)),
        };
        let wait = match self.holder {
            // Whichever machine has watched it for its whole time may be the next to look.
            _ if !self.seen.is_empty() => WATCHED.min(left.max(SOONEST)),
            Some(_) => LOOK_AGAIN.min(left.max(SOONEST)),
            None => left,
        };
        now.wall.plus(wait).0
    }
}

/// Whether a lease is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// It is valid.
    Live,
    /// It is not; another agent may claim the task.
    Lost(Lost),
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// It was not renewed in time.
    Expired,
    /// Its process ended.
    ProcessGone,
}

/// The fencing token of a lease: a number that rises with each lease of the task, and a random lease id. Both must
/// match.
///
/// The number orders holders; the id distinguishes two leases to which a restored database gave the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Rises with every lease of the task.
    pub number: u64,
    /// Random.
    pub id: LeaseId,
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.id)
    }
}

impl FromStr for Fence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('.')
            .and_then(|(number, id)| Some(Self { number: number.parse().ok()?, id: LeaseId::known(id) }))
            .ok_or_else(|| format!("`{text}` is not a fence; it looks like 3.ls_4f9k2m1x8q0z"))
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for Fence {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fence".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9]+\\.ls_" })
    }
}

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The process behind a lease, distinguished from any later process with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Machine (and pid namespace).
    pub host: String,
    /// Boot of that machine.
    pub boot: String,
    /// Process id.
    pub pid: u32,
    /// When that process started, in the kernel's own units.
    pub started: u64,
}

/// What is known about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is running or stopped.
    Alive,
    /// It has ended, according to this boot of this host, seen from a process that may see it.
    Dead,
    /// Unknown from here; only a clock can decide.
    Unknown,
}

/// Information about processes; passed in so that rules stay pure.
pub trait Processes {
    /// The machine on which the caller runs.
    fn host(&self) -> &str;
    /// The machine whose disks are visible. It is the same for groups of processes that do not see each other.
    fn disks(&self) -> &str {
        self.host()
    }
    /// What people call that machine; empty if nobody says.
    fn machine_name(&self) -> &str {
        ""
    }
    /// Whether that process is still running.
    fn liveness(&self, holder: &Holder) -> Liveness;
    /// Leases under which processes were started that still run on this machine: an agent may outlive its slot.
    fn attempts(&self) -> BTreeSet<String>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FixedProcesses, lease, now_at};

    #[test]
    fn a_silent_lease_ends_with_its_time() {
        let lease = lease(None);
        let nobody = FixedProcesses::default();
        assert_eq!(lease.standing(&now_at(9_999), &nobody), LeaseStatus::Live);
        assert_eq!(lease.standing(&now_at(10_000), &nobody), LeaseStatus::Lost(Lost::Expired));
    }

    #[test]
    fn a_living_process_keeps_its_lease_up_to_the_cap() {
        let lease = lease(Some(7));
        let alive = FixedProcesses::alive(&[7]);
        assert_eq!(lease.standing(&now_at(59_999), &alive), LeaseStatus::Live);
        assert_eq!(lease.standing(&now_at(60_000), &alive), LeaseStatus::Lost(Lost::Expired));
    }

    #[test]
    fn a_dead_process_loses_its_lease_at_once() {
        let lease = lease(Some(7));
        let processes = FixedProcesses::alive(&[]);
        assert_eq!(lease.standing(&now_at(1), &processes), LeaseStatus::Lost(Lost::ProcessGone));
        // Its agent runs on: only the clock frees the task.
        processes.leave_running(lease.fence.id.as_str());
        assert_eq!(lease.standing(&now_at(1), &processes), LeaseStatus::Live);
        assert_eq!(lease.standing(&now_at(10_000), &processes), LeaseStatus::Lost(Lost::Expired));
    }

    /// The same moment on another machine, whose monotonic clock began elsewhere.
    fn elsewhere(ms: i64) -> Now {
        Now { tick: Tick { epoch: "boot-2".into(), ms: ms + 77 }, ..now_at(ms) }
    }

    #[test]
    fn another_machine_frees_a_lease_only_after_it_watched_it_for_its_whole_time() {
        let nobody = FixedProcesses::default();
        let lease = lease(None);
        assert_eq!(lease.standing(&elsewhere(9_000_000), &nobody), LeaseStatus::Live, "never watched");
        let young = lease.clone().examined(&elsewhere(4_999));
        assert!(young.seen.is_empty(), "it may be renewed yet");
        let watched = lease.examined(&elsewhere(6_000));
        assert_eq!(watched.standing(&elsewhere(15_999), &nobody), LeaseStatus::Live);
        assert_eq!(watched.standing(&elsewhere(16_000), &nobody), LeaseStatus::Lost(Lost::Expired));
        let renewed = watched.renew(&now_at(9_000), None);
        assert_eq!(renewed.standing(&elsewhere(16_000), &nobody), LeaseStatus::Live, "a renewal ends the watch");
        assert_eq!(renewed.standing(&now_at(18_999), &nobody), LeaseStatus::Live, "and begins its time anew");
        assert_eq!(renewed.expires(), now_at(19_000).wall);
    }

    #[test]
    fn another_machine_watches_a_lease_that_seems_silent() {
        let begins = |now: Now| lease(None).begins_watch(&now);
        assert!(!begins(elsewhere(0)), "it was renewed just now");
        assert!(begins(elsewhere(5_000)), "half its time is over");
        assert!(begins(elsewhere(-1)), "the wall clock that renewed it was ahead");
        assert!(!begins(now_at(5_000)), "who renewed it knows how long ago that was");
    }

    #[test]
    fn no_step_of_the_wall_clock_frees_or_prolongs_a_lease() {
        let nobody = FixedProcesses::default();
        for step in [-31_536_000_000, -120_000, 120_000, 31_536_000_000] {
            let stepped = |ms: i64| Now { wall: Timestamp(now_at(ms).wall.0 + step), ..now_at(ms) };
            assert_eq!(lease(None).standing(&stepped(9_999), &nobody), LeaseStatus::Live);
            assert_eq!(lease(None).standing(&stepped(10_000), &nobody), LeaseStatus::Lost(Lost::Expired));
        }
    }

    #[test]
    fn a_renewal_for_less_time_moves_the_next_look() {
        let far = Lease { check_at: now_at(2_592_000_000).wall.0, ..lease(None) };
        assert_eq!(far.renew(&now_at(0), Some(Duration::from_secs(2))).check_at, now_at(1_000).wall.0);
        for look in [9_000, 15_000].map(|ms| now_at(ms).wall.0) {
            let near = Lease { check_at: look, ..lease(None) };
            assert_eq!(near.renew(&now_at(5_000), None).check_at, look);
        }
    }

    #[test]
    fn fences_read_back_what_they_print() {
        let fence = Fence { number: 3, id: LeaseId::known("ls_abc") };
        assert_eq!(fence.to_string().parse(), Ok(fence));
        assert!("3".parse::<Fence>().is_err());
    }
}
