//! Sound stores pass, planted bugs are caught.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::linear::tests::{Lcg, agrees_with_all_orders};
use crate::linear::{Call, Stuck, linearizable};

fn check(calls: &[Call<Op>]) -> Result<(), Stuck> {
    linearizable(&LeaseModel, calls)
}

fn call(op: Op, begin: u64, end: u64) -> Call<Op> {
    let end = Some(end);
    Call { op, begin, end }
}

/// The verdict that calls fit in this order, but then none of these.
fn stuck(prefix: impl IntoIterator<Item = usize>, blocked: usize) -> Result<(), Stuck> {
    let (prefix, blocked) = (prefix.into_iter().collect(), vec![blocked]);
    Err(Stuck { prefix, blocked })
}

/// The calls one after another, none overlapping, from this time on.
fn in_turn(start: u64, ops: &[Op]) -> Vec<Call<Op>> {
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
    assert_eq!(check(&in_turn(0, &ops)), Ok(()));
    let at_once: Vec<Call<Op>> = ops.iter().rev().map(|&op| call(op, 0, 1)).collect();
    assert_eq!(check(&at_once), Ok(()));
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
        assert_eq!(check(&in_turn(0, ops)), stuck(0..last, last));
    }
}

#[test]
fn a_crashed_claim_happened_or_not_but_never_both() {
    let (begin, end) = (5, None);
    let crashed = Call { op: CLAIM, begin, end };
    let then = |ops: &[Op]| check(&[in_turn(10, ops), vec![crashed.clone()]].concat());
    let (release, expire) = (Op::Release { fence: 1, ok: YES }, |fence| Op::Expire { fence });
    assert_eq!(then(&[won(1)]), Ok(()), "it never happened");
    assert_eq!(then(&[REFUSED]), Ok(()), "it took the task");
    assert_eq!(then(&[expire(1), won(2)]), Ok(()), "it took the task and lost it");
    assert_eq!(then(&[won(1), release, REFUSED]), Ok(()), "it took the task late");
    assert!(then(&[REFUSED, won(1)]).is_err(), "it took the task and did not");
    assert!(then(&[expire(1), won(2), expire(2), REFUSED]).is_err(), "it took the task twice");
    assert!(check(&[call(REFUSED, 0, 4), crashed.clone()]).is_err(), "it took the task before it began");
}

#[test]
fn a_crashed_finish_happened_or_not_but_never_both() {
    let mut calls = in_turn(0, &[won(1), Op::Finish { fence: 1, ok: None }]);
    calls[1].end = None;
    let mut then = |op: Op, begin: u64| {
        calls.push(call(op, begin, begin + 5));
        check(&calls)
    };
    assert_eq!(then(Op::Renew { fence: 1, ok: YES }, 20), Ok(()), "not yet");
    assert_eq!(then(Op::Renew { fence: 1, ok: NO }, 30), Ok(()), "by now");
    assert_eq!(then(REFUSED, 40), Ok(()), "for good");
    assert!(then(won(2), 50).is_err(), "no one comes after the finish");
}

// ---- Real threads, on a sound store and on broken ones ----

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

/// A store of one task, for many threads. A broken one does most things right.
trait Store: Sync {
    fn apply(&self, asked: Op) -> Option<Op>;
}

/// The sound store: everything happens under one lock.
#[derive(Default)]
struct Sound(Mutex<Task>);

impl Sound {
    fn with<T>(&self, act: impl FnOnce(&mut Task) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for Sound {
    fn apply(&self, asked: Op) -> Option<Op> {
        self.with(|task| task.apply(asked))
    }
}

/// A claim reads, lets go of the lock, and writes. The gate holds every claimer until all have read.
struct ReadThenWrite(Sound, Barrier);

impl Store for ReadThenWrite {
    fn apply(&self, asked: Op) -> Option<Op> {
        if asked != CLAIM {
            return self.0.apply(asked);
        }
        let fence = self.0.with(|task| task.last + 1);
        self.1.wait();
        self.0.with(|task| (task.holder, task.last) = (Some(fence), fence));
        Some(won(fence))
    }
}

/// Saving and finishing do not ask whose fence number it is.
#[derive(Default)]
struct Unfenced(Sound);

impl Store for Unfenced {
    fn apply(&self, asked: Op) -> Option<Op> {
        self.0.with(|task| match asked {
            Op::Save { .. } => Some(with_answer(asked, task.holder.is_some())),
            Op::Finish { .. } => {
                let ok = task.holder.take().is_some();
                task.finished |= ok;
                Some(with_answer(asked, ok))
            }
            _ => task.apply(asked),
        })
    }
}

/// A claim first looks at an old copy, which is not refreshed when the task is given back.
#[derive(Default)]
struct OldCopy(Sound, AtomicBool);

impl Store for OldCopy {
    fn apply(&self, asked: Op) -> Option<Op> {
        if asked == CLAIM && self.1.swap(true, Ordering::SeqCst) { Some(REFUSED) } else { self.0.apply(asked) }
    }
}

/// Notes all calls on a store as its clients see them.
struct Witness<'a> {
    store: &'a dyn Store,
    clock: Instant,
    calls: Mutex<Vec<Call<Op>>>,
}

impl Witness<'_> {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn note(&self, op: Op, begin: u64, end: Option<u64>) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Call { op, begin, end });
    }

    /// Makes the call, and lets other threads go first on the way there and back, so that calls overlap.
    fn call(&self, asked: Op) -> Option<Op> {
        let begin = self.now();
        thread::yield_now();
        let answer = self.store.apply(asked);
        thread::yield_now();
        let end = self.now();
        answer.inspect(|&op| self.note(op, begin, Some(end)))
    }

    /// A client crashes during its call, before or after the store has acted.
    fn crash(&self, asked: Op, acted: bool) {
        self.note(asked, self.now(), None);
        if acted {
            self.store.apply(asked);
        }
    }
}

/// What the witness saw while the clients were at work.
fn history(store: &dyn Store, clients: impl FnOnce(&Witness)) -> Vec<Call<Op>> {
    let witness = Witness { store, clock: Instant::now(), calls: Mutex::default() };
    clients(&witness);
    witness.calls.into_inner().unwrap_or_else(PoisonError::into_inner)
}

const THREADS: usize = 8;

/// All threads claim at once. Whoever wins does some work and gives the task back.
fn rush(witness: &Witness) {
    let work = || {
        if let Some(Op::Claim { won: Won::Fence(fence) }) = witness.call(CLAIM) {
            witness.call(Op::Save { fence, ok: None });
            witness.call(Op::Release { fence, ok: None });
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
}

/// The first holder's lease runs out, a second thread takes over, and then the first one wakes up and asks this.
fn takeover(witness: &Witness, asked: Op) {
    let gate = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            witness.call(CLAIM);
            witness.call(Op::Expire { fence: 1 });
            gate.wait();
            gate.wait();
            witness.call(asked);
        });
        gate.wait();
        witness.call(CLAIM);
        gate.wait();
    });
}

/// One thread claims the task and gives it back, and only then another one claims it.
fn handover(witness: &Witness) {
    let gate = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            gate.wait();
            witness.call(CLAIM);
        });
        witness.call(CLAIM);
        witness.call(Op::Release { fence: 1, ok: None });
        gate.wait();
    });
}

/// Any question, most of them sensible for a client that was last given this fence number.
fn any_question(random: &mut Lcg, fence: u64) -> Op {
    match random.below(16) {
        0..6 => CLAIM,
        6..8 => Op::Renew { fence, ok: None },
        8..10 => Op::Save { fence, ok: None },
        10..13 => Op::Release { fence, ok: None },
        13..15 => Op::Expire { fence },
        _ => Op::Finish { fence, ok: None },
    }
}

/// All threads ask this and that, and now and then one crashes and starts again.
fn bustle(witness: &Witness, seed: u64) {
    let work = |mut random: Lcg| {
        let mut fence = 1;
        for _ in 0..12 {
            let asked = any_question(&mut random, fence);
            if random.below(8) == 0 && !matches!(asked, Op::Expire { .. }) {
                witness.crash(asked, random.below(2) == 0);
            } else if let Some(Op::Claim { won: Won::Fence(given) }) = witness.call(asked) {
                fence = given;
            }
        }
    };
    thread::scope(|scope| {
        for i in 0..THREADS as u64 {
            scope.spawn(move || work(Lcg(seed << 8 | i)));
        }
    });
}

const STALE_SAVE: Op = Op::Save { fence: 1, ok: None };
const STALE_FINISH: Op = Op::Finish { fence: 1, ok: None };

#[test]
fn a_sound_store_is_accepted() {
    let mut overlaps = 0;
    for round in 0..20 {
        let histories = [
            history(&Sound::default(), rush),
            history(&Sound::default(), |witness| takeover(witness, STALE_SAVE)),
            history(&Sound::default(), |witness| takeover(witness, STALE_FINISH)),
            history(&Sound::default(), handover),
            history(&Sound::default(), |witness| bustle(witness, round)),
        ];
        for calls in histories {
            assert_eq!(check(&calls), Ok(()), "{calls:?}");
            let during = |a: &Call<Op>, b: &Call<Op>| b.begin > a.begin && a.end.is_some_and(|end| b.begin < end);
            overlaps += calls.iter().filter(|a| calls.iter().any(|b| during(a, b))).count();
        }
    }
    assert!(overlaps > 100, "only {overlaps} calls had company");
}

#[test]
fn two_winners_of_one_claim_are_caught() {
    let store = ReadThenWrite(Sound::default(), Barrier::new(THREADS));
    let calls = history(&store, rush);
    assert!(calls.iter().filter(|call| call.op == won(1)).count() == THREADS);
    assert!(check(&calls).is_err());
}

#[test]
fn a_stale_holder_that_is_obeyed_is_caught() {
    for asked in [STALE_SAVE, STALE_FINISH] {
        let calls = history(&Unfenced::default(), |witness| takeover(witness, asked));
        assert_eq!(check(&calls), stuck(0..3, 3));
    }
}

#[test]
fn an_answer_from_an_old_copy_is_caught() {
    let calls = history(&OldCopy::default(), handover);
    assert_eq!(check(&calls), stuck(0..2, 2));
}

// ---- Made-up histories, in great number and of great length ----

/// A history that a sound store could give, with something happening every ten ticks, on so many threads.
///
/// Every thread is always in some call. One call in `crashes` gets no answer. The task is finished late if at all.
fn made_up(random: &mut Lcg, length: usize, threads: u64, crashes: u64) -> Vec<Call<Op>> {
    let mut task = Task::default();
    let mut calls: Vec<Call<Op>> = Vec::new();
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
fn spoilt(random: &mut Lcg, op: Op) -> Op {
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
    let mut random = Lcg(2);
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
        verdicts[usize::from(agrees_with_all_orders(&LeaseModel, &calls))] += 1;
    }
    assert!(verdicts.iter().all(|&count| count > 4_000), "too one-sided to show much: {verdicts:?}");
}

#[test]
fn a_long_and_crowded_history_is_checked_quickly() {
    let limit = Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
    let quickly = |calls: &[Call<Op>]| {
        let start = Instant::now();
        let verdict = check(calls);
        assert!(start.elapsed() < limit, "took {:?}", start.elapsed());
        verdict
    };
    for crashes in [u64::MAX, 16, 4] {
        let calls = made_up(&mut Lcg(3), 500, 64, crashes);
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

#[test]
fn a_made_up_history_is_as_crowded_as_it_claims() {
    let calls = made_up(&mut Lcg(3), 500, 64, u64::MAX);
    let running = |at: u64| calls.iter().filter(|c| c.begin <= at && c.end >= Some(at)).count();
    assert!((500..4_500).step_by(100).all(|at| (58..=64).contains(&running(at))));
}
