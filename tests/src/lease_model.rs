//! What the leases of one task should do, when its calls come one after another.

use crate::linear::Model;

/// Where one task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The fence number of the lease in force, if there is one.
    pub held: Option<u64>,
    /// The highest fence number given out so far, 0 before the first.
    pub last: u64,
    /// Whether the task is done for good.
    pub finished: bool,
}

/// What a claim was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Won {
    /// The task is yours, under this fence number.
    Fence(u64),
    /// The task is held or finished.
    Refused,
    /// The answer never came.
    Unknown,
}

/// One call on the task and its answer. `ok` is `None` if the answer never came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Ask for the task.
    Claim {
        /// The answer.
        won: Won,
    },
    /// Ask to hold the task for longer.
    Renew {
        /// The fence number the caller was given.
        fence: u64,
        /// Whether the caller still held the task.
        ok: Option<bool>,
    },
    /// Store some progress.
    Save {
        /// The fence number the caller was given.
        fence: u64,
        /// Whether the caller still held the task.
        ok: Option<bool>,
    },
    /// Mark the task as done for good.
    Finish {
        /// The fence number the caller was given.
        fence: u64,
        /// Whether the caller still held the task.
        ok: Option<bool>,
    },
    /// Give the task back undone.
    Release {
        /// The fence number the caller was given.
        fence: u64,
        /// Whether the caller still held the task.
        ok: Option<bool>,
    },
    /// The store itself ends a lease that ran out. Nobody asks for it: it is read from the log.
    Expire {
        /// The fence number that lost the task.
        fence: u64,
    },
}

/// The rules for one task: one holder at a time, each under a higher fence number, and no one after the finish.
///
/// A call whose answer never came does what the rules allow at that moment, which may be nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaseModel;

impl Model for LeaseModel {
    type State = Lease;
    type Op = Op;

    fn start(&self) -> Lease {
        Lease::default()
    }

    fn step(&self, lease: &Lease, op: &Op) -> Option<Lease> {
        let free = Lease { held: None, ..*lease };
        match *op {
            Op::Claim { won } => lease.claim(won),
            Op::Renew { fence, ok } | Op::Save { fence, ok } => lease.as_holder(fence, ok, *lease),
            Op::Finish { fence, ok } => lease.as_holder(fence, ok, Lease { finished: true, ..free }),
            Op::Release { fence, ok } => lease.as_holder(fence, ok, free),
            Op::Expire { fence } => lease.as_holder(fence, Some(true), free),
        }
    }

    fn changes_nothing(&self, op: &Op) -> bool {
        match *op {
            Op::Claim { won } => won == Won::Refused,
            Op::Renew { .. } | Op::Save { .. } => true,
            Op::Finish { ok, .. } | Op::Release { ok, .. } => ok == Some(false),
            Op::Expire { .. } => false,
        }
    }
}

impl Lease {
    /// A claim wins the next fence number exactly if the task is neither held nor finished.
    fn claim(self, won: Won) -> Option<Lease> {
        let fence = self.last + 1;
        let open = self.held.is_none() && !self.finished;
        let possible = match won {
            Won::Fence(given) => open && given == fence,
            Won::Refused => !open,
            Won::Unknown => true,
        };
        possible.then_some(if open { Lease { held: Some(fence), last: fence, ..self } } else { self })
    }

    /// Only the holder gets `ok`, and only then does the task move on to `next`.
    fn as_holder(self, fence: u64, ok: Option<bool>, next: Lease) -> Option<Lease> {
        let holds = self.held == Some(fence);
        (ok.unwrap_or(holds) == holds).then_some(if holds { next } else { self })
    }
}

#[cfg(test)]
mod tests;
