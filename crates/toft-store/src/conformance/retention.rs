//! Retention: what is old enough is forgotten, in batches, and nothing else is.

use toft_core::{
    change::{Receipt, Write},
    flow::TaskStatus,
    id::{OpId, TaskId},
    message::{Delivery, DeliveryState},
    retention::Old,
    store::{Access, EventQuery},
};

use super::{
    Pair, change,
    fields::{at, attempt, base, message, task},
};

fn forget(pair: &Pair, what: Old, before: i64, limit: usize) -> usize {
    pair.writer.forget(what, at(before), limit).unwrap()
}

pub fn old_events_are_forgotten_but_the_newest_and_numbers_go_on(pair: &Pair) {
    let append = |n: i64| {
        let mut tx = pair.writer.begin(Access::Write).unwrap();
        let mut change = change(&format!("op_{n}"), 0, "x", vec![]);
        change.event.at = at(n);
        tx.apply(&change).unwrap();
        tx.commit().unwrap();
    };
    (1..=5).for_each(append);
    assert_eq!(forget(pair, Old::Events, 4, 2), 2);
    assert_eq!(forget(pair, Old::Events, 4, 2), 1);
    assert_eq!(forget(pair, Old::Events, 4, 2), 0);
    assert_eq!(forget(pair, Old::Events, 100, 9), 1);
    append(6);
    let left = pair.read(|tx| tx.events(&EventQuery { limit: 9, ..EventQuery::default() }));
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [5, 6]);
}

pub fn old_attempts_are_forgotten_once_their_task_is_over(pair: &Pair) {
    pair.write(&base());
    let mut over = task("tk_2", "wf_1");
    over.state.status = TaskStatus::Done;
    let mut open = task("tk_3", "wf_1");
    open.state.status = TaskStatus::Pending;
    pair.write(&[Write::Task(over), Write::Task(open)]);
    for (id, fence, ended) in [("tk_2", 1, Some(10)), ("tk_2", 2, Some(50)), ("tk_2", 3, None), ("tk_3", 1, Some(10))] {
        let mut row = attempt(id, fence);
        row.ended = ended.map(at);
        pair.write(&[Write::Attempt(row)]);
    }
    assert_eq!(forget(pair, Old::Attempts, 40, 9), 1);
    let left =
        |id: &str| pair.read(|tx| tx.attempts(&TaskId::known(id))).iter().map(|row| row.fence).collect::<Vec<_>>();
    assert_eq!((left("tk_2"), left("tk_3")), (vec![2, 3], vec![1]));
}

pub fn old_messages_are_forgotten_once_everyone_has_seen_them(pair: &Pair) {
    pair.write(&base());
    for (id, created, states) in [
        ("msg_seen", 10, &[DeliveryState::Read][..]),
        ("msg_unread", 11, &[DeliveryState::Read, DeliveryState::Queued]),
        ("msg_new", 90, &[DeliveryState::Read]),
    ] {
        let message = message(id, 2, created);
        let mut rows = vec![Write::Message(message.clone())];
        for (n, state) in states.iter().enumerate() {
            let (recipient, rank) = (format!("r{n}"), format!("2{created:04}"));
            rows.push(Write::Delivery(Delivery { message: message.id.clone(), recipient, state: *state, rank }));
        }
        pair.write(&rows);
    }
    assert_eq!(forget(pair, Old::Messages, 50, 9), 1);
    assert_eq!(forget(pair, Old::Messages, 50, 9), 0);
    let inbox = pair.read(|tx| tx.inbox("r0", false, 9));
    assert_eq!(inbox.iter().map(|letter| letter.message.id.as_str()).collect::<Vec<_>>(), ["msg_unread", "msg_new"]);
    assert_eq!(pair.read(|tx| tx.inbox("r1", true, 9)).len(), 1);
}

pub fn old_receipts_are_forgotten(pair: &Pair) {
    for n in [10, 20, 90] {
        let op = OpId::known(format!("op_{n}"));
        let receipt = Receipt {
            op,
            actor: "blue".into(),
            verb: "claim".into(),
            request: String::new(),
            outcome: n.into(),
            at: at(n),
        };
        pair.write(&[Write::Receipt(receipt)]);
    }
    assert_eq!(forget(pair, Old::Receipts, 50, 1), 1);
    assert_eq!(forget(pair, Old::Receipts, 50, 9), 1);
    assert!(pair.read(|tx| tx.receipt(&OpId::known("op_90"))).is_some());
}
