//! Checks that what many clients saw can be explained by one order of their calls.
//!
//! A correct store makes every call look as if it happened at one instant between its begin and its end.
//! The checker searches for such an order and remembers every place it has been, so it visits none twice.
//! This is the search of Wing and Gong, with the memory that Lowe added.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// What a store should do when its calls come one after another.
pub trait Model {
    /// All that the store remembers between calls.
    type State: Clone + Eq + Hash;
    /// One call together with its answer.
    type Op: PartialEq;

    /// The state before the first call.
    fn start(&self) -> Self::State;

    /// The state after this call, or `None` if its answer was impossible in this state.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;

    /// Whether this call leaves every state in which it is possible as it was.
    ///
    /// `false` is always safe. `true` saves the search much work, above all when the history is wrong.
    fn changes_nothing(&self, _op: &Self::Op) -> bool {
        false
    }
}

/// One call as its client saw it.
#[derive(Clone, Debug)]
pub struct Call<Op> {
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

/// Looks for an order of the calls in which every answer is possible.
///
/// A call that ended before another began comes before it. Calls that touch or overlap may come either way round.
///
/// # Panics
///
/// If a call ended before it began, for then the clock was wrong and no verdict would mean anything.
pub fn linearizable<M: Model>(model: &M, calls: &[Call<M::Op>]) -> Result<(), Stuck> {
    let forward = |call: &Call<M::Op>| call.end.is_none_or(|end| call.begin <= end);
    assert!(calls.iter().all(forward), "a call ended before it began");
    let mut by_begin: Vec<usize> = (0..calls.len()).collect();
    by_begin.sort_by_key(|&i| calls[i].begin);
    let (path, done, stuck) = (Vec::new(), vec![0; calls.len().div_ceil(64)], Stuck::default());
    let mut search = Search { model, calls, by_begin, path, done, stuck };

    let mut seen = HashSet::new();
    let mut levels = vec![search.choices(&model.start())];
    while let Some(Some(level)) = levels.last_mut() {
        if let Some((call, state)) = level.pop() {
            search.path.push(call);
            search.flip(call);
            let new = seen.insert((search.done.clone(), state.clone()));
            levels.push(if new { search.choices(&state) } else { Some(Vec::new()) });
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
struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Call<M::Op>],
    by_begin: Vec<usize>,
    path: Vec<usize>,
    /// One bit for each call: whether it is in `path`.
    done: Vec<u64>,
    stuck: Stuck,
}

impl<M: Model> Search<'_, M> {
    /// Marks a call as done, or as not done if it was.
    fn flip(&mut self, call: usize) {
        self.done[call / 64] ^= 1 << (call % 64);
    }

    /// The calls that may come next and the states they lead to, the most promising last. `None` at the goal.
    fn choices(&mut self, state: &M::State) -> Option<Vec<(usize, M::State)>> {
        let (mut sure, mut blocked) = (Vec::new(), Vec::new());
        let mut lost: Vec<(usize, M::State)> = Vec::new();
        let mut first_end = u64::MAX;
        let waiting = |i: &&usize| self.done[**i / 64] >> (**i % 64) & 1 == 0;
        for &i in self.by_begin.iter().filter(waiting) {
            let call = &self.calls[i];
            if call.begin > first_end {
                break; // a waiting call ended before this one began, and before all that follow
            }
            first_end = first_end.min(call.end.unwrap_or(u64::MAX));
            match (self.model.step(state, &call.op), call.end) {
                // It fits and disturbs nobody, so no order is missed by taking it now.
                (Some(next), Some(_)) if self.model.changes_nothing(&call.op) => return Some(vec![(i, next)]),
                (Some(next), Some(_)) => sure.push((i, next)),
                (None, Some(_)) => blocked.push(i),
                // Without effect it need not happen, and of equal calls the one begun first serves for all.
                (Some(next), None) if next != *state && lost.iter().all(|(j, _)| self.calls[*j].op != call.op) => {
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
pub(crate) mod tests {
    use super::*;

    /// A tiny source of numbers that look random and are the same in every run.
    pub(crate) struct Lcg(pub(crate) u64);

    impl Lcg {
        /// A number from 0 up to, but not including, `limit`.
        pub(crate) fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    /// Calls `visit` with every order of the items from `fixed` on.
    fn permute(items: &mut [usize], fixed: usize, visit: &mut dyn FnMut(&[usize])) {
        if fixed == items.len() {
            visit(items);
        }
        for i in fixed..items.len() {
            items.swap(fixed, i);
            permute(items, fixed + 1, visit);
            items.swap(fixed, i);
        }
    }

    /// How many answers this order explains before it breaks off.
    fn explained<M: Model>(model: &M, calls: &[Call<M::Op>], order: &[usize]) -> usize {
        let mut state = model.start();
        let mut answers = 0;
        for (at, &i) in order.iter().enumerate() {
            let ended_before = |j: usize| calls[j].end.is_some_and(|end| end < calls[i].begin);
            let too_early = (0..calls.len()).any(|j| ended_before(j) && !order[..at].contains(&j));
            match model.step(&state, &calls[i].op) {
                Some(next) if !too_early => state = next,
                _ => break,
            }
            answers += usize::from(calls[i].end.is_some());
        }
        answers
    }

    /// Compares the checker with trying all orders of all choices of lost calls, and returns the verdict.
    pub(crate) fn agrees_with_all_orders<M: Model>(model: &M, calls: &[Call<M::Op>]) -> bool {
        let ended = |order: &[usize]| order.iter().filter(|&&i| calls[i].end.is_some()).count();
        let mut most = 0;
        for kept in 0..1_u32 << calls.len() {
            let mut order: Vec<usize> = (0..calls.len()).filter(|i| kept >> i & 1 == 1).collect();
            if (0..calls.len()).all(|i| calls[i].end.is_none() || order.contains(&i)) {
                permute(&mut order, 0, &mut |order| most = most.max(explained(model, calls, order)));
            }
        }
        let everything: Vec<usize> = (0..calls.len()).collect();
        match linearizable(model, calls) {
            Ok(()) => assert_eq!(most, ended(&everything)),
            Err(stuck) => {
                assert!(most < ended(&everything), "rejected, but there is an order");
                assert_eq!(ended(&stuck.prefix), most, "not the longest prefix");
                assert_eq!(explained(model, calls, &stuck.prefix), most, "the prefix itself is impossible");
                assert!(!stuck.blocked.is_empty());
                for call in stuck.blocked {
                    assert!(!stuck.prefix.contains(&call));
                    assert_eq!(explained(model, calls, &[&stuck.prefix[..], &[call]].concat()), most);
                }
                return false;
            }
        }
        true
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Op {
        Write(u64),
        Read(u64),
        /// Adds one, and answers the new value.
        Add(u64),
    }

    /// One number that can be written and read.
    struct Register {
        hint: bool,
    }

    impl Model for Register {
        type State = u64;
        type Op = Op;

        fn start(&self) -> u64 {
            0
        }

        fn step(&self, state: &u64, op: &Op) -> Option<u64> {
            match *op {
                Op::Write(value) => Some(value),
                Op::Read(value) => (value == *state).then_some(value),
                Op::Add(value) => (value == *state + 1).then_some(value),
            }
        }

        fn changes_nothing(&self, op: &Op) -> bool {
            self.hint && matches!(op, Op::Read(_))
        }
    }

    fn call(op: Op, begin: u64, end: u64) -> Call<Op> {
        Call { op, begin, end: Some(end) }
    }

    fn check(calls: &[Call<Op>]) -> Result<(), Stuck> {
        let verdict = linearizable(&Register { hint: true }, calls);
        assert_eq!(verdict.is_ok(), linearizable(&Register { hint: false }, calls).is_ok());
        verdict
    }

    #[test]
    fn no_calls_are_fine() {
        assert_eq!(check(&[]), Ok(()));
    }

    #[test]
    fn calls_that_do_not_overlap_keep_their_order() {
        assert_eq!(check(&[call(Op::Write(1), 0, 1), call(Op::Read(1), 2, 3)]), Ok(()));
        let stuck = check(&[call(Op::Write(1), 0, 1), call(Op::Read(0), 2, 3)]).expect_err("the read is too old");
        assert_eq!(stuck, Stuck { prefix: vec![0], blocked: vec![1] });
        let text = "no order explains every answer: after 1 calls (the last are [0]) none of [1] fits";
        assert_eq!(stuck.to_string(), text);
    }

    #[test]
    fn calls_that_overlap_or_touch_may_come_either_way_round() {
        for begin in [1, 2] {
            assert_eq!(check(&[call(Op::Write(1), 0, 2), call(Op::Read(0), begin, 3)]), Ok(()));
            assert_eq!(check(&[call(Op::Write(1), 0, 2), call(Op::Read(1), begin, 3)]), Ok(()));
        }
        assert!(check(&[call(Op::Write(1), 0, 9), call(Op::Read(1), 1, 2), call(Op::Read(0), 3, 4)]).is_err());
    }

    #[test]
    fn a_lost_call_happens_once_or_never_but_not_before_it_began() {
        let lost = Call { op: Op::Write(1), begin: 5, end: None };
        let read = |value, begin| call(Op::Read(value), begin, begin + 1);
        assert_eq!(check(&[lost.clone(), read(0, 6), read(0, 90)]), Ok(()));
        assert_eq!(check(&[lost.clone(), read(0, 6), read(1, 90)]), Ok(()));
        assert!(check(&[lost.clone(), read(1, 6), read(0, 90)]).is_err());
        assert!(check(&[read(1, 0), lost]).is_err());
    }

    #[test]
    #[should_panic(expected = "ended before it began")]
    fn a_clock_that_runs_backwards_is_refused() {
        let _ = check(&[call(Op::Read(0), 2, 1)]);
    }

    #[test]
    fn agrees_with_trying_every_order() {
        let mut random = Lcg(1);
        let mut verdicts = [0, 0];
        for round in 0..20_000 {
            let calls: Vec<Call<Op>> = (0..1 + random.below(6))
                .map(|_| {
                    let op = [Op::Write, Op::Read, Op::Add][random.below(3) as usize](random.below(3));
                    let begin = random.below(8);
                    let end = (random.below(5) > 0).then(|| begin + random.below(6));
                    Call { op, begin, end }
                })
                .collect();
            verdicts[usize::from(agrees_with_all_orders(&Register { hint: round % 2 == 0 }, &calls))] += 1;
        }
        assert!(verdicts.iter().all(|&count| count > 4_000), "too one-sided to show much: {verdicts:?}");
    }
}
