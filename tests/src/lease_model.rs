//! What the leases of one task should do, and the search for one order of the calls of many clients that explains every
//! answer.
//!
//! A correct store makes every call look as if it happened at one instant between its begin and its end. The search is
//! that of Wing and Gong, with the memory that Lowe added: it visits no place twice.

use std::{collections::HashSet, fmt};

/// Where one task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Lease {
    /// The fence number of the lease in force, if there is one.
    held: Option<u64>,
    /// The highest fence number given out so far, 0 before the first.
    last: u64,
    /// Whether the task is done for good.
    finished: bool,
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

/// One call as its client saw it.
#[derive(Clone, Debug)]
pub struct Call {
    /// What was asked and what was answered.
    pub op: Op,
    /// When the client asked, in any unit, on a clock that all clients share.
    pub begin: u64,
    /// When the answer came. `None` if it never did: the call may have happened at any time after `begin`, or never.
    pub end: Option<u64>,
}

/// Why a history was rejected: the best order that was found, and where it broke off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stuck {
    /// The order that explains the most answers, as indices of calls.
    pub prefix: Vec<usize>,
    /// The calls of which one had to come next, though none was possible.
    pub blocked: Vec<usize>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = &self.prefix[self.prefix.len().saturating_sub(8)..];
        let (count, blocked) = (self.prefix.len(), &self.blocked);
        write!(
            f,
            "no order explains every answer: after {count} calls (the last are {tail:?}) none of {blocked:?} fits"
        )
    }
}

impl std::error::Error for Stuck {}

impl Op {
    /// True of a call that leaves every state in which it is possible as it was, which saves the search much work.
    fn changes_nothing(self) -> bool {
        match self {
            Op::Claim { won } => won == Won::Refused,
            Op::Renew { .. } | Op::Save { .. } => true,
            Op::Finish { ok, .. } | Op::Release { ok, .. } => ok == Some(false),
            Op::Expire { .. } => false,
        }
    }
}

/// The rules for one task: one holder at a time, each under a higher fence number, and no one after the finish.
///
/// A call whose answer never came does what the rules allow at that moment, which may be nothing.
impl Lease {
    /// Returns the state after this call, or `None` if its answer was impossible in this state.
    fn step(self, op: Op) -> Option<Self> {
        let free = Self { held: None, ..self };
        match op {
            Op::Claim { won } => self.claim(won),
            Op::Renew { fence, ok } | Op::Save { fence, ok } => self.as_holder(fence, ok, self),
            Op::Finish { fence, ok } => self.as_holder(fence, ok, Self { finished: true, ..free }),
            Op::Release { fence, ok } => self.as_holder(fence, ok, free),
            Op::Expire { fence } => self.as_holder(fence, Some(true), free),
        }
    }

    /// A claim wins the next fence number exactly if the task is neither held nor finished.
    fn claim(self, won: Won) -> Option<Self> {
        let fence = self.last + 1;
        let open = self.held.is_none() && !self.finished;
        let possible = match won {
            Won::Fence(given) => open && given == fence,
            Won::Refused => !open,
            Won::Unknown => true,
        };
        possible.then_some(if open { Self { held: Some(fence), last: fence, ..self } } else { self })
    }

    /// Only the holder gets `ok`, and only then does the task move on to `next`.
    fn as_holder(self, fence: u64, ok: Option<bool>, next: Self) -> Option<Self> {
        let holds = self.held == Some(fence);
        (ok.unwrap_or(holds) == holds).then_some(if holds { next } else { self })
    }
}

/// Looks for an order of the calls in which every answer is possible.
///
/// A call that ended before another began comes before it. Calls that touch or overlap may come either way round.
///
/// # Panics
///
/// If a call ended before it began, for then the clock was wrong and no verdict would mean anything.
pub fn find_order(calls: &[Call]) -> Result<(), Stuck> {
    let forward = |call: &Call| call.end.is_none_or(|end| call.begin <= end);
    assert!(calls.iter().all(forward), "a call ended before it began");
    let mut by_begin: Vec<usize> = (0..calls.len()).collect();
    by_begin.sort_by_key(|&i| calls[i].begin);
    let (path, done, stuck) = (Vec::new(), vec![0; calls.len().div_ceil(64)], Stuck::default());
    let mut search = Search { calls, by_begin, path, done, stuck };

    let mut seen = HashSet::new();
    let mut levels = vec![search.choices(Lease::default())];
    while let Some(Some(level)) = levels.last_mut() {
        if let Some((call, state)) = level.pop() {
            search.path.push(call);
            search.flip(call);
            let new = seen.insert((search.done.clone(), state));
            levels.push(if new { search.choices(state) } else { Some(Vec::new()) });
        } else {
            levels.pop();
            if let Some(call) = search.path.pop() {
                search.flip(call);
            }
        }
    }
    if levels.is_empty() { Err(search.stuck) } else { Ok(()) }
}

/// The order being tried, and the best one that broke off.
struct Search<'a> {
    calls: &'a [Call],
    by_begin: Vec<usize>,
    path: Vec<usize>,
    /// One bit for each call: whether it is in `path`.
    done: Vec<u64>,
    stuck: Stuck,
}

impl Search<'_> {
    /// Marks a call as done, or as not done if it was.
    fn flip(&mut self, call: usize) {
        self.done[call / 64] ^= 1 << (call % 64);
    }

    /// The calls that may come next and the states they lead to, the most promising last. `None` at the goal.
    fn choices(&mut self, state: Lease) -> Option<Vec<(usize, Lease)>> {
        let (mut sure, mut blocked) = (Vec::new(), Vec::new());
        let mut lost: Vec<(usize, Lease)> = Vec::new();
        let mut first_end = u64::MAX;
        let waiting = |i: &&usize| self.done[**i / 64] >> (**i % 64) & 1 == 0;
        for &i in self.by_begin.iter().filter(waiting) {
            let call = &self.calls[i];
            if call.begin > first_end {
                break; // a waiting call ended before this one began, and before all that follow
            }
            first_end = first_end.min(call.end.unwrap_or(u64::MAX));
            match (state.step(call.op), call.end) {
                // It fits and disturbs nobody, so no order is missed by taking it now.
                (Some(next), Some(_)) if call.op.changes_nothing() => return Some(vec![(i, next)]),
                (Some(next), Some(_)) => sure.push((i, next)),
                (None, Some(_)) => blocked.push(i),
                // Without effect it need not happen, and of equal calls the one begun first serves for all.
                (Some(next), None) if next != state && lost.iter().all(|(j, _)| self.calls[*j].op != call.op) => {
                    lost.push((i, next));
                }
                (_, None) => {}
            }
        }
        if sure.is_empty() && blocked.is_empty() {
            return None;
        }
        let answers = |path: &[usize]| path.iter().filter(|&&i| self.calls[i].end.is_some()).count();
        let better = || self.stuck.blocked.is_empty() || answers(&self.path) > answers(&self.stuck.prefix);
        if sure.is_empty() && better() {
            self.stuck = Stuck { prefix: self.path.clone(), blocked };
        }
        Some(sure.into_iter().chain(lost).rev().collect())
    }
}

#[cfg(test)]
mod tests;
