//! Histories that hold are accepted, and each broken rule is found.

use std::time::{Duration, Instant};

use super::*;
use crate::workspaces::Dice;

fn call(op: Op, begin: u64, end: u64) -> Call {
    let end = Some(end);
    Call { op, begin, end }
}

/// The verdict that calls fit in this order, but then none of these.
fn stuck(prefix: impl IntoIterator<Item = usize>, blocked: usize) -> Result<(), Stuck> {
    let (prefix, blocked) = (prefix.into_iter().collect(), vec![blocked]);
    Err(Stuck { prefix, blocked })
}

/// The calls one after another, none overlapping, from this time on.
fn in_turn(start: u64, ops: &[Op]) -> Vec<Call> {
    let begins = (start..).step_by(10);
    ops.iter().zip(begins).map(|(&op, begin)| call(op, begin, begin + 5)).collect()
}

const fn won(fence: u64) -> Op {
    Op::Claim { won: Won::Fence(fence) }
}
const REFUSED: Op = Op::Claim { won: Won::Refused };
const CLAIM: Op = Op::Claim { won: Won::Unknown };
const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

/// The same call with this answer.
fn with_answer(asked: Op, ok: bool) -> Op {
    let ok = Some(ok);
    match asked {
        Op::Renew { fence, .. } => Op::Renew { fence, ok },
        Op::Save { fence, .. } => Op::Save { fence, ok },
        Op::Finish { fence, .. } => Op::Finish { fence, ok },
        Op::Release { fence, .. } => Op::Release { fence, ok },
        Op::Claim { .. } | Op::Expire { .. } => asked,
    }
}

// ---- Histories written by hand ----

#[test]
fn a_life_of_a_task_is_accepted() {
    let ops = [
        Op::Save { fence: 1, ok: NO },
        won(1),
        REFUSED,
        Op::Renew { fence: 1, ok: YES },
        Op::Save { fence: 1, ok: YES },
        Op::Release { fence: 1, ok: YES },
        Op::Release { fence: 1, ok: NO },
        won(2),
        Op::Expire { fence: 2 },
        Op::Renew { fence: 2, ok: NO },
        won(3),
        Op::Finish { fence: 2, ok: NO },
        Op::Finish { fence: 3, ok: YES },
        Op::Finish { fence: 3, ok: NO },
        REFUSED,
    ];
    assert_eq!(find_order(&in_turn(0, &ops)), Ok(()));
    let at_once: Vec<Call> = ops.iter().rev().map(|&op| call(op, 0, 1)).collect();
    assert_eq!(find_order(&at_once), Ok(()));
}

#[test]
fn each_broken_rule_is_rejected() {
    let finish = Op::Finish { fence: 1, ok: YES };
    let release = Op::Release { fence: 1, ok: YES };
    let broken: [&[Op]; 12] = [
        &[REFUSED],
        &[won(2)],
        &[won(1), won(2)],
        &[won(1), won(1)],
        &[won(1), Op::Renew { fence: 1, ok: NO }],
        &[won(1), Op::Save { fence: 2, ok: YES }],
        &[won(1), finish, finish],
        &[won(1), finish, won(2)],
        &[won(1), release, won(1)],
        &[won(1), release, REFUSED],
        &[won(1), Op::Expire { fence: 1 }, Op::Renew { fence: 1, ok: YES }],
        &[won(1), release, Op::Expire { fence: 1 }],
    ];
    for ops in broken {
        let last = ops.len() - 1;
        assert_eq!(find_order(&in_turn(0, ops)), stuck(0..last, last));
    }
}

#[test]
fn a_crashed_claim_happened_or_not_but_never_both() {
    let (begin, end) = (5, None);
    let crashed = Call { op: CLAIM, begin, end };
    let then = |ops: &[Op]| find_order(&[in_turn(10, ops), vec![crashed.clone()]].concat());
    let (release, expire) = (Op::Release { fence: 1, ok: YES }, |fence| Op::Expire { fence });
    assert_eq!(then(&[won(1)]), Ok(()), "it never happened");
    assert_eq!(then(&[REFUSED]), Ok(()), "it took the task");
    assert_eq!(then(&[expire(1), won(2)]), Ok(()), "it took the task and lost it");
    assert_eq!(then(&[won(1), release, REFUSED]), Ok(()), "it took the task late");
    assert!(then(&[REFUSED, won(1)]).is_err(), "it took the task and did not");
    assert!(then(&[expire(1), won(2), expire(2), REFUSED]).is_err(), "it took the task twice");
    assert!(find_order(&[call(REFUSED, 0, 4), crashed.clone()]).is_err(), "it took the task before it began");
}

#[test]
fn a_crashed_finish_happened_or_not_but_never_both() {
    let mut calls = in_turn(0, &[won(1), Op::Finish { fence: 1, ok: None }]);
    calls[1].end = None;
    let mut then = |op: Op, begin: u64| {
        calls.push(call(op, begin, begin + 5));
        find_order(&calls)
    };
    assert_eq!(then(Op::Renew { fence: 1, ok: YES }, 20), Ok(()), "not yet");
    assert_eq!(then(Op::Renew { fence: 1, ok: NO }, 30), Ok(()), "by now");
    assert_eq!(then(REFUSED, 40), Ok(()), "for good");
    assert!(then(won(2), 50).is_err(), "no one comes after the finish");
}

#[test]
fn calls_that_overlap_or_touch_may_come_either_way_round() {
    for begin in [1, 2] {
        for refused in [REFUSED, Op::Save { fence: 1, ok: YES }] {
            let released = call(Op::Release { fence: 1, ok: YES }, 1, 2);
            assert_eq!(find_order(&[call(won(1), 0, 0), released, call(refused, begin, 3)]), Ok(()));
        }
    }
    let stuck = find_order(&in_turn(0, &[won(1), won(2)])).expect_err("it was held");
    let text = "no order explains every answer: after 1 calls (the last are [0]) none of [1] fits";
    assert_eq!(stuck.to_string(), text);
}

#[test]
#[should_panic(expected = "ended before it began")]
fn a_clock_that_runs_backwards_is_refused() {
    let _ = find_order(&[call(REFUSED, 2, 1)]);
}

// ---- Made-up histories, in great number and of great length ----

#[derive(Default)]
struct Task {
    holder: Option<u64>,
    last: u64,
    finished: bool,
}

impl Task {
    /// Does what is asked and fills in the answer. `None` if a lease should expire and there is none.
    fn apply(&mut self, asked: Op) -> Option<Op> {
        Some(match asked {
            Op::Claim { .. } if self.finished || self.holder.is_some() => REFUSED,
            Op::Claim { .. } => {
                self.last += 1;
                self.holder = Some(self.last);
                won(self.last)
            }
            Op::Renew { fence, .. } => with_answer(asked, self.holder == Some(fence)),
            Op::Save { fence, .. } => with_answer(asked, self.holder == Some(fence)),
            Op::Release { fence, .. } => with_answer(asked, self.give_up(fence)),
            Op::Finish { fence, .. } => {
                let ok = self.give_up(fence);
                self.finished |= ok;
                with_answer(asked, ok)
            }
            Op::Expire { .. } => {
                let fence = self.holder.take()?;
                Op::Expire { fence }
            }
        })
    }

    fn give_up(&mut self, fence: u64) -> bool {
        self.holder.take_if(|holder| *holder == fence).is_some()
    }
}

/// Any question, most of them sensible for a client that was last given this fence number.
fn any_question(random: &mut Dice, fence: u64) -> Op {
    match random.below(16) {
        0..6 => CLAIM,
        6..8 => Op::Renew { fence, ok: None },
        8..10 => Op::Save { fence, ok: None },
        10..13 => Op::Release { fence, ok: None },
        13..15 => Op::Expire { fence },
        _ => Op::Finish { fence, ok: None },
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
fn explained(calls: &[Call], order: &[usize]) -> usize {
    let mut state = Lease::default();
    let mut answers = 0;
    for (at, &i) in order.iter().enumerate() {
        let ended_before = |j: usize| calls[j].end.is_some_and(|end| end < calls[i].begin);
        let too_early = (0..calls.len()).any(|j| ended_before(j) && !order[..at].contains(&j));
        match state.step(calls[i].op) {
            Some(next) if !too_early => state = next,
            _ => break,
        }
        answers += usize::from(calls[i].end.is_some());
    }
    answers
}

/// Compares the checker with trying all orders of all choices of lost calls, and returns the verdict.
fn agrees_with_all_orders(calls: &[Call]) -> bool {
    let ended = |order: &[usize]| order.iter().filter(|&&i| calls[i].end.is_some()).count();
    let mut most = 0;
    for kept in 0..1_u32 << calls.len() {
        let mut order: Vec<usize> = (0..calls.len()).filter(|i| kept >> i & 1 == 1).collect();
        if (0..calls.len()).all(|i| calls[i].end.is_none() || order.contains(&i)) {
            permute(&mut order, 0, &mut |order| most = most.max(explained(calls, order)));
        }
    }
    let everything: Vec<usize> = (0..calls.len()).collect();
    match find_order(calls) {
        Ok(()) => assert_eq!(most, ended(&everything)),
        Err(stuck) => {
            assert!(most < ended(&everything), "rejected, but there is an order");
            assert_eq!(ended(&stuck.prefix), most, "not the longest prefix");
            assert_eq!(explained(calls, &stuck.prefix), most, "the prefix itself is impossible");
            assert!(!stuck.blocked.is_empty());
            for call in stuck.blocked {
                assert!(!stuck.prefix.contains(&call));
                assert_eq!(explained(calls, &[&stuck.prefix[..], &[call]].concat()), most);
            }
            return false;
        }
    }
    true
}

/// A history that a sound store could give, with something happening every ten ticks, on so many threads.
///
/// Every thread is always in some call. One call in `crashes` gets no answer. The task is finished late if at all.
fn made_up(random: &mut Dice, length: usize, threads: u64, crashes: u64) -> Vec<Call> {
    let mut task = Task::default();
    let mut calls: Vec<Call> = Vec::new();
    let mut latest: Vec<Option<usize>> = vec![None; threads as usize];
    while calls.len() < length {
        let fence = task.last.saturating_sub(random.below(4) / 3);
        let asked = any_question(random, fence);
        let crashed = random.below(crashes) == 0 && !matches!(asked, Op::Expire { .. });
        if matches!(asked, Op::Finish { .. }) && calls.len() * 3 < length * 2 {
            continue;
        }
        let acted = !crashed || random.below(2) == 0;
        let Some(answer) = (if acted { task.apply(asked) } else { Some(asked) }) else {
            continue;
        };
        let now = 10 * calls.len() as u64;
        let begin = match latest[random.below(threads) as usize].replace(calls.len()) {
            None => 0,
            Some(before) => {
                let turn = 10 * before as u64 + random.below(now - 10 * before as u64);
                calls[before].end = calls[before].end.map(|_| turn);
                turn + 1
            }
        };
        let end = (!crashed).then_some(10 * length as u64);
        let op = if crashed { asked } else { answer };
        calls.push(Call { op, begin, end });
    }
    calls
}

/// The same call with some other answer, or perhaps the same.
fn spoilt(random: &mut Dice, op: Op) -> Op {
    let (fence, ok) = (1 + random.below(3), random.below(2) == 0);
    match op {
        Op::Claim { .. } if ok => won(fence),
        Op::Claim { .. } => REFUSED,
        Op::Expire { .. } => Op::Expire { fence },
        _ => with_answer(op, ok),
    }
}

#[test]
fn agrees_with_trying_every_order() {
    let mut random = Dice::new(2);
    let mut verdicts = [0, 0];
    for _ in 0..20_000 {
        let (length, threads) = (1 + random.below(6) as usize, 1 + random.below(4));
        let mut calls = made_up(&mut random, length, threads, 5);
        for _ in 0..random.below(4) {
            let call = random.below(length as u64) as usize;
            calls[call].op = spoilt(&mut random, calls[call].op);
            calls.swap(0, call);
        }
        let tick = 1 + 10 * random.below(3);
        for call in &mut calls {
            (call.begin, call.end) = (call.begin / tick, call.end.map(|end| end / tick));
        }
        verdicts[usize::from(agrees_with_all_orders(&calls))] += 1;
    }
    assert!(verdicts.iter().all(|&count| count > 4_000), "too one-sided to show much: {verdicts:?}");
}

#[test]
fn a_long_and_crowded_history_is_checked_quickly() {
    let limit = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
    let quickly = |calls: &[Call]| {
        let start = Instant::now();
        let verdict = find_order(calls);
        assert!(start.elapsed() < limit, "took {:?}", start.elapsed());
        verdict
    };
    for crashes in [u64::MAX, 16, 4] {
        let calls = made_up(&mut Dice::new(3), 500, 64, crashes);
        assert_eq!(quickly(&calls), Ok(()));

        // The worst of mistakes: a call that could come anywhere, but fits nowhere.
        let is_win = |op: &Op| matches!(op, Op::Claim { won: Won::Fence(_) });
        let wins: Vec<Op> = calls.iter().map(|call| call.op).filter(is_win).collect();
        for op in [wins[0], wins[wins.len() / 2], won(999), Op::Save { fence: 999, ok: YES }] {
            let wrong = call(op, 0, u64::MAX);
            assert!(quickly(&[&calls[..], &[wrong]].concat()).is_err(), "{op:?}");
        }
    }
}
