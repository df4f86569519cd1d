//! A fleet in one process, driven by a seed: hosts with clocks, processes and networks of their own, runners on them, one
//! store, one ledger, and nemeses that break each of these. What is checked are effects: never two agents at work on one
//! task, every acknowledged write is there, every task ends and its ledger says so.
//!
//! The rules are the real ones: verbs of `toft-core` on its memory store, its `Keeper` for every hold, its outbox for the
//! ledger. Only what surrounds them is played: time, processes, the network, the disk. The same seed plays the same again.

mod nemesis;
mod session;
mod slot;
mod world;

use std::collections::BTreeMap;

use toft_core::{
    flow::TaskStatus,
    store::{self, TaskQuery},
};

use self::{session::Session, slot::Slot, world::World};

/// How long everything may go wrong, and how long the fleet then has to finish, in milliseconds.
const STORM: u64 = 90_000;
const CALM: u64 = 600_000;
/// Time passes in steps of so many milliseconds.
pub(crate) const STEP: u64 = 100;

/// A defect put in on purpose: the simulation must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A process of another boot of a machine with the same id counts as dead.
    ClonedHostJudgedDead,
    /// A runner that cannot renew lets its agent go on.
    NoSelfFencing,
    /// A session writes under the live hold of its name, not under its own fence.
    NameInsteadOfFence,
    /// A claim whose ledger cannot be told is an error, though it was committed.
    ErrorAfterCommit,
    /// An operation id is believed whatever is asked under it.
    OpIdWithoutHash,
}

impl Bug {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::ClonedHostJudgedDead,
        Self::NoSelfFencing,
        Self::NameInsteadOfFence,
        Self::ErrorAfterCommit,
        Self::OpIdWithoutHash,
    ];
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Verbs that were performed.
    pub calls: u64,
    /// Writes that somebody was told of.
    pub acknowledged: u64,
    /// How often each nemesis struck.
    pub nemeses: BTreeMap<&'static str, u64>,
    /// Simulated milliseconds until every task had ended.
    pub ended_after: u64,
}

/// Plays one seed; says what was broken, with the last things that happened.
pub fn play(seed: u64, bug: Option<Bug>) -> Result<Report, String> {
    let mut world = World::new(seed, bug);
    let mut slots: Vec<Slot> =
        (0..world.hosts.len()).flat_map(|host| (0..2).map(move |n| (host, n))).map(Slot::new).collect();
    let mut sessions: Vec<Session> = (0..2).map(|n| Session::new(n % world.hosts.len(), n)).collect();
    let ended = |world: &mut World| world.all_ended();
    while world.time < STORM + CALM {
        world.time += STEP;
        match world.time <= STORM {
            true => nemesis::strike(&mut world, &mut slots),
            false => nemesis::heal(&mut world, &mut slots),
        }
        for slot in &mut slots {
            slot.step(&mut world);
        }
        for session in &mut sessions {
            session.step(&mut world);
        }
        world.deliver();
        check_nobody_doubles(&mut world, &slots);
        if let Some(broken) = world.broken.take() {
            return Err(world.story(&broken));
        }
        if world.time > STORM && world.time.is_multiple_of(1_000) && ended(&mut world) {
            check_acknowledged(&mut world);
            return match world.broken.take() {
                Some(broken) => Err(world.story(&broken)),
                None => Ok(Report { ended_after: world.time, ..world.report }),
            };
        }
    }
    let left = world.unended();
    Err(world.story(&format!("these never ended: {left}")))
}

/// Never two agents at work on one task.
fn check_nobody_doubles(world: &mut World, slots: &[Slot]) {
    let mut at_work: BTreeMap<&str, &str> = BTreeMap::new();
    let mut broken = None;
    for orphan in world.orphans.iter().filter(|orphan| world.hosts[orphan.host].paused_until <= world.time) {
        at_work.insert(&orphan.task, &orphan.of);
    }
    for slot in slots {
        let Some(task) = slot.at_work(world) else { continue };
        if let Some(other) = at_work.insert(task, slot.name()) {
            broken = Some(format!("{other} and {} are both at work on {task}", slot.name()));
        }
    }
    world.broken = world.broken.take().or(broken);
}

/// Every acknowledged write is there.
fn check_acknowledged(world: &mut World) {
    let tasks = store::ask(world.store(), |tx| tx.tasks(&TaskQuery::default())).unwrap_or_default();
    for (task, note) in world.saved.clone() {
        let id = toft_core::id::TaskId::known(task.as_str());
        let kept = store::ask(world.store(), |tx| tx.checkpoints(&id, 0)).unwrap_or_default();
        if !kept.iter().any(|checkpoint| checkpoint.summary == note) {
            world.broken = Some(format!("the acknowledged checkpoint {note} of {task} is gone"));
        }
    }
    for task in &world.done {
        let found = tasks.iter().find(|known| known.id.as_str() == task);
        if found.is_none_or(|known| known.state.status != TaskStatus::Done) {
            world.broken = Some(format!("{task} was acknowledged as done and is not"));
        }
    }
}
