//! Leases: an agent's exclusive, expiring, fenced hold on one task.
//!
//! Owns the judgement whether a hold still stands. Leases end by clock, so a crashed agent frees its task
//! unaided; a living process on this host keeps its own up to a cap, and a dead one loses it at once.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    id::{AgentId, LeaseId, RepositoryId, TaskId, WorkflowId},
    time::{Now, Tick, Timestamp, millis},
};

/// How long a lease with a known process on this machine goes unexamined.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The one live hold on a task. Ended ones live on as attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What is held.
    pub task: TaskId,
    /// The task's workflow.
    pub workflow: WorkflowId,
    /// The task's repository.
    pub repository: Option<RepositoryId>,
    /// Who holds it.
    pub agent: AgentId,
    /// What every write of the holder must name.
    pub fence: Fence,
    /// When it was taken.
    pub acquired: Timestamp,
    /// How long it lasts after each renewal.
    pub ttl: Duration,
    /// How long a living but silent process may keep it after its last renewal.
    pub cap: Duration,
    /// Wall clock of the last renewal.
    pub renewed: Timestamp,
    /// Lease clock of the last renewal.
    pub renewed_tick: Tick,
    /// When, on the lease clock, somebody should next examine it. Renewals leave it alone, so no index moves with a heartbeat.
    pub check_at: i64,
    /// The process that holds it, when there is one to watch.
    pub holder: Option<Holder>,
}

impl Lease {
    /// When it ends unless renewed, for people.
    pub fn expires(&self) -> Timestamp {
        self.renewed.plus(self.ttl)
    }

    /// Does the hold still stand?
    pub fn standing(&self, now: &Now, processes: &dyn Processes) -> Standing {
        let alive = self.holder.as_ref().map(|holder| processes.liveness(holder));
        if alive == Some(Liveness::Dead) {
            return Standing::Lost(Lost::ProcessGone);
        }
        let silent = now.since(&self.renewed_tick, self.renewed);
        if silent < self.ttl || (alive == Some(Liveness::Alive) && silent < self.cap) {
            Standing::Live
        } else {
            Standing::Lost(Lost::Expired)
        }
    }

    /// Is it due for a look?
    pub fn due(&self, now: &Now) -> bool {
        self.renewed_tick.epoch != now.tick.epoch || self.check_at <= now.tick.ms
    }

    /// The same lease, renewed now.
    pub fn renew(mut self, now: &Now, ttl: Option<Duration>) -> Self {
        self.ttl = ttl.unwrap_or(self.ttl);
        self.cap = self.cap.max(self.ttl);
        let rebooted = self.renewed_tick.epoch != now.tick.epoch;
        self.renewed = now.wall;
        self.renewed_tick = now.tick.clone();
        // Usually the next look stays where it was; it moves only if it would come too late.
        if rebooted || self.check_at > now.tick.ms.saturating_add(millis(self.ttl)) {
            self.check_at = self.next_check(now);
        }
        self
    }

    /// When to look at it next: soon if a process can be watched, else when it would end.
    pub fn next_check(&self, now: &Now) -> i64 {
        let left = self.ttl.saturating_sub(now.since(&self.renewed_tick, self.renewed));
        let wait = match self.holder {
            Some(_) => LOOK_AGAIN.min(left.max(Duration::from_millis(100))),
            None => left,
        };
        now.tick.ms.saturating_add(millis(wait))
    }
}

/// Whether a hold still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Live,
    /// It does not; the task may be given to someone else.
    Lost(Lost),
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// Nobody renewed it in time.
    Expired,
    /// Its process ended.
    ProcessGone,
}

/// A number one higher each time the task is leased, and a random lease id; both must match.
///
/// The number orders holders; the id tells two apart that a restored database gave the same number.
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

/// The process behind a lease, told apart from any later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs, or is stopped.
    Alive,
    /// It is over.
    Dead,
    /// It is another machine's; only the clock can tell.
    Elsewhere,
}

/// Looks at processes; passed in so that rules stay pure.
pub trait Processes {
    /// The machine this question is asked on.
    fn host(&self) -> &str;
    /// The machine whose disks are seen: the same where several kinds of processes do not see each other.
    fn disks(&self) -> &str {
        self.host()
    }
    /// Is that process still there?
    fn liveness(&self, holder: &Holder) -> Liveness;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FixedProcesses, lease, now_at};

    #[test]
    fn a_silent_lease_ends_with_its_time() {
        let lease = lease(None);
        let nobody = FixedProcesses::default();
        assert_eq!(lease.standing(&now_at(9_999), &nobody), Standing::Live);
        assert_eq!(lease.standing(&now_at(10_000), &nobody), Standing::Lost(Lost::Expired));
    }

    #[test]
    fn a_living_process_keeps_its_lease_up_to_the_cap() {
        let lease = lease(Some(7));
        let alive = FixedProcesses::alive(&[7]);
        assert_eq!(lease.standing(&now_at(59_999), &alive), Standing::Live);
        assert_eq!(lease.standing(&now_at(60_000), &alive), Standing::Lost(Lost::Expired));
    }

    #[test]
    fn a_dead_process_loses_its_lease_at_once() {
        let lease = lease(Some(7));
        assert_eq!(lease.standing(&now_at(1), &FixedProcesses::alive(&[])), Standing::Lost(Lost::ProcessGone));
    }

    #[test]
    fn a_renewal_after_a_reboot_or_for_less_time_moves_the_next_look() {
        let far = Lease { check_at: 2_592_000_000, ..lease(None) };
        let mut rebooted = now_at(5);
        rebooted.tick = Tick { epoch: "boot-2".into(), ms: 5 };
        assert_eq!(far.clone().renew(&rebooted, None).check_at, 10_005);
        assert_eq!(far.renew(&now_at(0), Some(Duration::from_secs(2))).check_at, 2_000);
        let near = Lease { check_at: 9_000, ..lease(None) };
        assert_eq!(near.renew(&now_at(5_000), None).check_at, 9_000);
    }

    #[test]
    fn fences_read_back_what_they_print() {
        let fence = Fence { number: 3, id: LeaseId::known("ls_abc") };
        assert_eq!(fence.to_string().parse(), Ok(fence));
        assert!("3".parse::<Fence>().is_err());
    }
}
