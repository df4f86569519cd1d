//! The queue: lanes read in the order of rank.

use toft_core::{
    change::{QueueEntry, Write},
    flow::{Workflow, WorkflowStatus},
    id::{RepositoryId, TaskId},
    repository::Scope,
};

use super::{
    Pair,
    fields::{base, task, workflow},
};

fn entry(task: &str, lane: &str, rank: &str) -> Write {
    Write::Queue(QueueEntry { task: TaskId::known(task), lane: lane.into(), rank: rank.into() })
}

fn lane(pair: &Pair, lane: &str, after: &str, upto: Option<&str>, limit: usize) -> Vec<String> {
    let rows = pair.read(|tx| tx.queued(lane, after, upto, limit));
    rows.into_iter().map(|(entry, task)| format!("{}={}", entry.rank, task.id)).collect()
}

fn three(pair: &Pair) {
    pair.write(&base());
    pair.write(&[
        Write::Task(task("tk_2", "wf_1")),
        Write::Task(task("tk_3", "wf_1")),
        entry("tk_1", "a", "2"),
        entry("tk_2", "a", "1"),
        entry("tk_3", "b", "0"),
    ]);
}

pub fn a_lane_is_read_in_the_order_of_rank(pair: &Pair) {
    three(pair);
    assert_eq!(lane(pair, "a", "", None, 0), ["1=tk_2", "2=tk_1"]);
    assert_eq!(lane(pair, "a", "", None, 1), ["1=tk_2"]);
    assert_eq!(lane(pair, "a", "1", None, 0), ["2=tk_1"]);
    assert_eq!(lane(pair, "a", "", Some("2"), 0), ["1=tk_2"]);
    assert!(lane(pair, "c", "", None, 0).is_empty());
}

pub fn a_task_queues_once(pair: &Pair) {
    three(pair);
    pair.write(&[entry("tk_1", "b", "3"), Write::DropQueue(TaskId::known("tk_2"))]);
    assert!(lane(pair, "a", "", None, 0).is_empty());
    assert_eq!(lane(pair, "b", "", None, 0), ["0=tk_3", "3=tk_1"]);
}

pub fn open_lanes_are_those_of_limited_workflows_with_room(pair: &Pair) {
    let open = |id: &str| Workflow { full: false, ..workflow(id) };
    pair.write(&[
        Write::Workflow(open("wf_room")),
        Write::Workflow(workflow("wf_full")),
        Write::Workflow(Workflow { max_parallel: None, budget: None, ..open("wf_unlimited") }),
        Write::Workflow(Workflow { status: WorkflowStatus::Paused, ..open("wf_paused") }),
        Write::Workflow(Workflow { spent: 9.0, ..open("wf_spent") }),
        Write::Workflow(Workflow { repositories: vec![RepositoryId::known("rp_z")], ..open("wf_z") }),
    ]);
    let lanes = |repository: Option<&str>| {
        let scope = Scope { repository: repository.map(RepositoryId::known), worktree: None };
        let rows = pair.read(|tx| tx.open_lanes(&scope));
        rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(lanes(None), ["wf_room", "wf_z"]);
    assert_eq!(lanes(Some("rp_a")), ["wf_room"]);
}
