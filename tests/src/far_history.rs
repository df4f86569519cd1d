//! What far workers saw, compared with what the store has.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use toft_cluster::Cluster;

use crate::{
    far_faults::Fault,
    far_network::PLACES,
    far_work::{Asked, Seen},
    lease_model::{LeaseModel, Op, Won},
    linear::{Call, linearizable},
};

/// A wait that is longer than this has to be explained by a fault.
const LONG: Duration = Duration::from_secs(1);

/// An event of the store.
struct Event {
    seq: u64,
    verb: String,
    task: String,
    fence: u64,
    op: String,
}

/// The verb of the event that a call leaves behind, if it leaves one.
fn verb_of(seen: &Seen) -> Option<&'static str> {
    match seen.asked {
        Asked::Claim => seen.ok.then_some("claim"),
        Asked::Save => seen.ok.then_some("save"),
        Asked::Finish => seen.ok.then_some("task.done"),
        Asked::Release => seen.ok.then_some("task.released"),
        Asked::FinishLate | Asked::Again => None,
    }
}

fn events(cluster: &Cluster, schema: &str) -> Vec<Event> {
    let sql = format!(
        "select seq, verb, entity, coalesce(detail::jsonb ->> 'fence', '0'), op from {schema}.events order by seq"
    );
    let read = |line: &str| {
        let cells: Vec<&str> = line.split('|').collect();
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{line}"));
        let [verb, task, op] = [cells[1], cells[2], cells[4]].map(str::to_owned);
        Event { seq: number(cells[0]), verb, task, fence: number(cells[3]), op }
    };
    cluster.psql(&sql).lines().map(read).collect()
}

/// Every answered call is in the store's history once, under its operation id, in an order that agrees with the clock;
/// and nothing else is there. Event numbers have no gap. Returns the number of events.
pub fn check_events(cluster: &Cluster, schema: &str, history: &[Seen]) -> usize {
    let events = events(cluster, schema);
    compare(&events, history);
    events.len()
}

fn compare(events: &[Event], history: &[Seen]) {
    let calls: HashMap<(&str, &str), &Seen> =
        history.iter().filter_map(|seen| Some(((verb_of(seen)?, seen.op.as_str()), seen))).collect();
    let answered = history.iter().filter(|seen| verb_of(seen).is_some()).count();
    assert_eq!(calls.len(), answered, "two calls have one operation id");
    let (mut found, mut latest_begin) = (BTreeSet::new(), 0);
    for (event, number) in events.iter().zip(1..) {
        let Event { seq, verb, task, fence, op } = event;
        assert_eq!(*seq, number, "event numbers have a gap");
        assert_ne!(verb, "lease.lost", "{task} was taken from its holder");
        if !["claim", "save", "task.done", "task.released"].contains(&verb.as_str()) {
            continue;
        }
        let Some(seen) = calls.get(&(verb.as_str(), op.as_str())) else {
            panic!("{verb} of {task} under {fence} by {op} is in the store, and nobody was told");
        };
        // A checkpoint has no fence.
        let same = *task == seen.task && (*fence == seen.fence || verb == "save");
        assert!(same, "{verb} {op} of {task} under {fence} was answered otherwise: {seen:?}");
        assert!(found.insert((verb, op)), "{verb} {op} of {task} happened twice");
        assert!(seen.end >= latest_begin, "{verb} {op}, event {seq}, ended before an earlier event's call began");
        latest_begin = latest_begin.max(seen.begin);
    }
    for (verb, op) in calls.keys() {
        let known = found.contains(&(&(*verb).to_owned(), &(*op).to_owned()));
        assert!(known, "{verb} {op} was answered and is lost");
    }
}

/// The tasks that are done are those whose finish was answered, each once; nobody holds any. Returns how many are done.
pub fn check_tasks(cluster: &Cluster, schema: &str, history: &[Seen], made: usize) -> usize {
    let rows = cluster.psql(&format!("select id, status from {schema}.task_states"));
    assert_eq!(rows.lines().count(), made, "as many tasks as were made");
    let done: BTreeSet<&str> = rows.lines().filter_map(|row| row.strip_suffix("|done")).collect();
    let mut told = BTreeSet::new();
    for seen in history.iter().filter(|seen| seen.ok && seen.asked == Asked::Finish) {
        assert!(told.insert(seen.task.as_str()), "{} was finished twice", seen.task);
    }
    let lost: Vec<_> = told.difference(&done).collect();
    assert!(lost.is_empty(), "their finish was answered, and they are not done: {lost:?}");
    let untold: Vec<_> = done.difference(&told).collect();
    assert!(untold.is_empty(), "they are done, and nobody was told: {untold:?}");
    assert_eq!(cluster.psql(&format!("select count(*) from {schema}.leases")), "0", "leases without a holder");
    done.len()
}

/// No two workers held a task at the same time, and one order explains all that was done with each task. Returns how many
/// tasks were held more than once.
pub fn check_leases(history: &[Seen]) -> usize {
    let mut tasks: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for seen in history.iter().filter(|seen| !seen.task.is_empty()) {
        tasks.entry(&seen.task).or_default().push(seen);
    }
    let mut shared = 0;
    for (task, seen) in tasks {
        let end_of = |claim: &Seen| {
            let ends =
                |other: &&&Seen| matches!(other.asked, Asked::Finish | Asked::Release) && other.fence == claim.fence;
            seen.iter().find(ends).unwrap_or_else(|| panic!("{task}: {claim:?} has no end")).begin
        };
        let claims = seen.iter().filter(|call| call.asked == Asked::Claim);
        let mut holds: Vec<_> = claims.map(|claim| (claim.end, end_of(claim), claim.worker)).collect();
        holds.sort_unstable();
        shared += usize::from(holds.len() > 1);
        for pair in holds.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{task}: two workers held it: {pair:?}");
        }
        let calls: Vec<Call<Op>> = seen.iter().filter_map(|seen| call_of(seen)).collect();
        linearizable(&LeaseModel, &calls).unwrap_or_else(|stuck| panic!("{task}: {stuck}\n{calls:#?}"));
    }
    shared
}

fn call_of(seen: &Seen) -> Option<Call<Op>> {
    let (fence, ok) = (seen.fence, Some(seen.ok));
    let op = match seen.asked {
        Asked::Claim => Op::Claim { won: Won::Fence(fence) },
        Asked::Save => Op::Save { fence, ok },
        Asked::Finish | Asked::FinishLate => Op::Finish { fence, ok },
        Asked::Release => Op::Release { fence, ok },
        // Its answer was compared with the first one; it does nothing.
        Asked::Again => return None,
    };
    Some(Call { op, begin: seen.begin, end: Some(seen.end) })
}

/// What waits were like.
#[derive(Default)]
pub struct Waits {
    /// Waits of more than a second that a fault explains.
    pub explained: usize,
    /// Those that began when a fault was over, and calls that had waited for its end were not yet answered.
    pub aftermath: usize,
    /// Those that only the machine itself explains: it stalled, or all workers began at once.
    pub stalled: usize,
    /// The longest wait, as text.
    pub longest: String,
    /// The longest part of a wait during which there was no fault.
    pub longest_after: Duration,
    /// The longest wait that no fault touched.
    pub longest_calm: Duration,
    /// Waits of more than a second that nothing explains.
    pub unexplained: Vec<String>,
}

/// Looks for a fault behind every long wait. After a fault, all workers may ask at once for `aftermath`.
pub fn waits(history: &[Seen], faults: &[Fault], aftermath: Duration) -> Waits {
    let late = |fault: &Fault| Fault { end: fault.end + aftermath.as_nanos() as u64, ..*fault };
    let after: Vec<Fault> = faults.iter().filter(|fault| fault.is_put_in()).map(late).collect();
    let (mut waits, mut longest) = (Waits::default(), Duration::ZERO);
    for seen in history {
        let wait = Duration::from_nanos(seen.end - seen.begin);
        if wait <= LONG && wait <= waits.longest_calm {
            continue;
        }
        let place = seen.worker % PLACES;
        let touching: Vec<&Fault> =
            faults.iter().filter(|fault| fault.overlap(place, seen.begin, seen.end).is_some()).collect();
        if touching.is_empty() {
            waits.longest_calm = waits.longest_calm.max(wait);
        }
        if wait <= LONG {
            continue;
        }
        let words = || {
            let each = touching.iter().map(|fault| {
                let part = fault.overlap(place, seen.begin, seen.end).unwrap_or_default();
                format!("{:?} for {part:.1?}", fault.kind)
            });
            let each = each.collect::<Vec<_>>().join(", ");
            format!("{:?} {} of worker {}, {} tries, {wait:.1?}: {each}", seen.asked, seen.op, seen.worker, seen.tries)
        };
        let follows = || after.iter().any(|fault| fault.overlap(place, seen.begin, seen.end).is_some());
        match () {
            () if touching.iter().any(|fault| fault.is_put_in()) => waits.explained += 1,
            () if !touching.is_empty() => waits.stalled += 1,
            () if follows() => waits.aftermath += 1,
            () => waits.unexplained.push(words()),
        }
        waits.longest_after = waits.longest_after.max(wait.saturating_sub(covered(&touching, seen)));
        if wait > longest {
            (longest, waits.longest) = (wait, words());
        }
    }
    waits
}

/// How much of a wait has a fault.
fn covered(touching: &[&Fault], seen: &Seen) -> Duration {
    let mut spans: Vec<(u64, u64)> =
        touching.iter().map(|fault| (fault.begin.max(seen.begin), fault.end.min(seen.end))).collect();
    spans.sort_unstable();
    let (mut sum, mut reached) = (0, 0);
    for (begin, end) in spans {
        sum += end.saturating_sub(begin.max(reached));
        reached = reached.max(end);
    }
    Duration::from_nanos(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far_faults::Kind;

    fn seen(worker: usize, asked: Asked, fence: u64, begin: u64, end: u64) -> Seen {
        let op = format!("op_{worker}_{asked:?}_{fence}");
        Seen { worker, asked, op, task: "tk_1".into(), fence, ok: true, begin, end, tries: 1 }
    }

    fn event(seq: u64, seen: &Seen) -> Event {
        let verb = verb_of(seen).unwrap().to_owned();
        Event { seq, verb, task: seen.task.clone(), fence: seen.fence, op: seen.op.clone() }
    }

    /// Worker 0 claims and releases, then worker 1 claims and finishes.
    fn history() -> Vec<Seen> {
        vec![
            seen(0, Asked::Claim, 1, 0, 10),
            seen(0, Asked::Release, 1, 20, 30),
            seen(1, Asked::Claim, 2, 25, 40),
            seen(1, Asked::Finish, 2, 50, 60),
        ]
    }

    fn events_of(history: &[Seen]) -> Vec<Event> {
        history.iter().zip(1..).map(|(seen, seq)| event(seq, seen)).collect()
    }

    fn refused(check: impl FnOnce() + std::panic::UnwindSafe) -> String {
        let panic = std::panic::catch_unwind(check).expect_err("it should be refused");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn a_history_that_fits_is_accepted() {
        compare(&events_of(&history()), &history());
        assert_eq!(check_leases(&history()), 1);
    }

    #[test]
    fn what_is_lost_untold_doubled_missing_or_out_of_order_is_found() {
        let with = |change: fn(&mut Vec<Event>)| {
            let mut events = events_of(&history());
            change(&mut events);
            refused(move || compare(&events, &history()))
        };
        let lost = with(|events| drop(events.pop()));
        assert!(lost.contains("is lost"), "{lost}");
        let doubled = with(|events| events.push(event(5, &history()[3])));
        assert!(doubled.contains("happened twice"), "{doubled}");
        let gap = with(|events| events[3].seq = 5);
        assert!(gap.contains("gap"), "{gap}");
        let swapped = with(|events| {
            events.swap(0, 3);
            (events[0].seq, events[3].seq) = (1, 4);
        });
        assert!(swapped.contains("ended before"), "{swapped}");
        let untold = refused(|| compare(&events_of(&history()), &history()[..3]));
        assert!(untold.contains("nobody was told"), "{untold}");
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let mut calls = history();
        (calls[2].begin, calls[2].end) = (11, 15);
        let said = refused(move || assert_eq!(check_leases(&calls), 1));
        assert!(said.contains("two workers held it"), "{said}");
    }

    #[test]
    fn a_wait_is_explained_by_a_fault_at_its_own_place_and_time_only() {
        const SECOND: u64 = 1_000_000_000;
        let calls = [seen(0, Asked::Claim, 1, 10 * SECOND, 12 * SECOND)];
        let fault = |kind, place, begin: u64| Fault { kind, place, begin: begin * SECOND, end: (begin + 1) * SECOND };
        let unexplained = |fault| waits(&calls, &[fault], Duration::ZERO).unexplained.len();
        assert_eq!(unexplained(fault(Kind::Partition, Some(0), 11)), 0);
        assert_eq!(unexplained(fault(Kind::ServerKilled, None, 10)), 0);
        assert_eq!(unexplained(fault(Kind::Partition, Some(1), 11)), 1);
        assert_eq!(unexplained(fault(Kind::Partition, Some(0), 13)), 1);
        let stalled = waits(&calls, &[fault(Kind::Stall, None, 11)], Duration::ZERO);
        assert_eq!((stalled.explained, stalled.stalled, stalled.longest_after), (0, 1, Duration::from_secs(1)));
        let late = |aftermath| waits(&calls, &[fault(Kind::Partition, Some(0), 8)], aftermath);
        assert_eq!(late(Duration::from_millis(1_500)).aftermath, 1);
        assert_eq!(late(Duration::from_millis(500)).unexplained.len(), 1);
    }
}
