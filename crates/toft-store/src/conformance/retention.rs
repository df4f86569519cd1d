//! Retention: old rows are deleted in batches, and no others.

use std::time::Duration;

use toft_core::{
    agent::AgentState,
    change::{Receipt, Write},
    flow::TaskStatus,
    id::{AgentId, OpId, TaskId},
    message::{Delivery, DeliveryState},
    retention::RetentionKind,
    store::{Access, EventQuery, WorkspaceQuery},
    workspace::{Workspace, WorkspaceState},
};

use super::{
    Pair, change,
    fields::{agent, at, attempt, base, checkpoint, lease, message, task, workspace},
};

fn forget(pair: &Pair, what: RetentionKind, before: i64, limit: usize) -> usize {
    pair.clock.advance(Duration::from_secs(1));
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
    assert_eq!(forget(pair, RetentionKind::Events, 4, 2), 2);
    assert_eq!(forget(pair, RetentionKind::Events, 4, 2), 1);
    assert_eq!(forget(pair, RetentionKind::Events, 4, 2), 0);
    assert_eq!(forget(pair, RetentionKind::Events, 100, 9), 1);
    append(6);
    let left = pair.read(|tx| tx.events(&EventQuery { limit: 9, ..EventQuery::default() }));
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [5, 6]);
}

pub fn an_event_from_the_future_is_kept_and_protects_nothing_around_it(pair: &Pair) {
    let five_years = 5 * 365 * 24 * 3_600_000;
    for (n, time) in [1, five_years, five_years + 1, 2, 3, 4, 90].into_iter().enumerate() {
        let mut tx = pair.writer.begin(Access::Write).unwrap();
        let mut change = change(&format!("op_{n}"), 0, "x", vec![]);
        change.event.at = at(time);
        tx.apply(&change).unwrap();
        tx.commit().unwrap();
    }
    assert_eq!(forget(pair, RetentionKind::Events, 50, 2), 2);
    assert_eq!(forget(pair, RetentionKind::Events, 50, 2), 2);
    assert_eq!(forget(pair, RetentionKind::Events, 50, 2), 0);
    let left = pair.read(|tx| tx.events(&EventQuery { limit: 9, ..EventQuery::default() }));
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3, 7]);
}

pub fn old_checkpoints_are_forgotten_once_their_task_is_over_but_the_newest(pair: &Pair) {
    pair.write(&base());
    let mut open = task("tk_2", "wf_1");
    open.state.status = TaskStatus::Pending;
    let mut over = task("tk_1", "wf_1");
    over.state.status = TaskStatus::Done;
    pair.write(&[Write::Task(open), Write::Task(over)]);
    for (id, seq, created) in [("tk_1", 1, 10), ("tk_1", 2, 60), ("tk_1", 3, 11), ("tk_2", 4, 10), ("tk_2", 5, 10)] {
        let mut row = checkpoint(seq);
        (row.task, row.created) = (TaskId::known(id), at(created));
        pair.write(&[Write::Checkpoint(row)]);
    }
    assert_eq!(forget(pair, RetentionKind::Checkpoints, 50, 9), 1);
    assert_eq!(forget(pair, RetentionKind::Checkpoints, 100, 9), 1);
    assert_eq!(forget(pair, RetentionKind::Checkpoints, 100, 9), 0);
    let left = |id: &str| {
        let rows = pair.read(|tx| tx.checkpoints(&TaskId::known(id), 9));
        rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    assert_eq!((left("tk_1"), left("tk_2")), (vec![3], vec![5, 4]));
}

pub fn idle_agents_are_forgotten_with_their_inboxes(pair: &Pair) {
    pair.write(&base());
    let seen = |id: &str, n: i64, state: AgentState| {
        let mut row = agent(id, id);
        (row.seen, row.state) = (at(n), state);
        Write::Agent(row)
    };
    let mut held = lease("tk_1");
    held.agent = AgentId::known("ag_holds");
    let letter = message("msg_1", 2, 10);
    let delivery = |recipient: &str| {
        let (recipient, rank) = (recipient.to_owned(), "20010".to_owned());
        Write::Delivery(Delivery {
            message: letter.id.clone(),
            recipient,
            state: DeliveryState::Queued,
            rank,
            read_at: None,
        })
    };
    pair.write(&[
        seen("ag_1", 90, AgentState::Active),
        seen("ag_idle", 10, AgentState::Active),
        seen("ag_gone", 10, AgentState::Gone),
        seen("ag_told", 10, AgentState::Draining),
        seen("ag_holds", 10, AgentState::Active),
        Write::Lease(held),
        Write::Message(letter.clone()),
        delivery("ag_idle"),
        delivery("ag_told"),
    ]);
    assert_eq!(forget(pair, RetentionKind::Agents, 50, 1), 1);
    assert_eq!(forget(pair, RetentionKind::Agents, 50, 9), 1);
    assert_eq!(forget(pair, RetentionKind::Agents, 50, 9), 0);
    let left = pair.read(|tx| tx.agents());
    assert_eq!(left.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["ag_1", "ag_holds", "ag_told"]);
    let inbox = |id: &str| pair.read(|tx| tx.inbox(id, false, 9)).len();
    assert_eq!((inbox("ag_idle"), inbox("ag_told")), (0, 1));
}

pub fn workspaces_that_are_gone_are_forgotten_unless_they_were_rescued(pair: &Pair) {
    let row = |id: &str, used: i64, state: WorkspaceState, rescue: Option<&str>| {
        let rescue = rescue.map(str::to_owned);
        Write::Workspace(Workspace { used: at(used), state, rescue, ..workspace(id, used) })
    };
    pair.write(&[
        row("ws_1", 10, WorkspaceState::Removed, None),
        row("ws_2", 10, WorkspaceState::Ready, None),
        row("ws_3", 10, WorkspaceState::Removed, Some("refs/toft/rescue/x")),
        row("ws_4", 90, WorkspaceState::Removed, None),
    ]);
    assert_eq!(forget(pair, RetentionKind::Workspaces, 50, 9), 1);
    let left = pair.read(|tx| tx.workspaces(&WorkspaceQuery::default()));
    assert_eq!(left.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["ws_4", "ws_3", "ws_2"]);
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
    assert_eq!(forget(pair, RetentionKind::Attempts, 40, 9), 1);
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
            rows.push(Write::Delivery(Delivery {
                message: message.id.clone(),
                recipient,
                state: *state,
                rank,
                read_at: None,
            }));
        }
        pair.write(&rows);
    }
    assert_eq!(forget(pair, RetentionKind::Messages, 50, 9), 1);
    assert_eq!(forget(pair, RetentionKind::Messages, 50, 9), 0);
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
    assert_eq!(forget(pair, RetentionKind::Receipts, 50, 1), 1);
    assert_eq!(forget(pair, RetentionKind::Receipts, 50, 9), 1);
    assert!(pair.read(|tx| tx.receipt(&OpId::known("op_90"))).is_some());
}
