//! The queue: lanes read in the order of rank.

use toft_core::{
    change::{QueueEntry, Write},
    flow::{Workflow, WorkflowStatus},
    id::{RepositoryId, TaskId, WorkflowId},
    repository::Scope,
    store::{Access, QueueKey, QueueScan},
};

use super::{
    Pair,
    fields::{base, task, workflow},
};

fn entry(task: &str, lane: &str, rank: &str) -> QueueEntry {
    QueueEntry {
        task: TaskId::known(task),
        lane: lane.into(),
        rank: rank.into(),
        workflow: WorkflowId::known("wf_1"),
        worktree: None,
        labels: Vec::new(),
    }
}

fn read(pair: &Pair, lanes: &[&str], key: &QueueKey, after: &str, upto: Option<&str>, limit: usize) -> Vec<String> {
    let lanes: Vec<String> = lanes.iter().map(ToString::to_string).collect();
    let scan = QueueScan { lanes: &lanes, key, after, upto, limit, taking: false };
    let rows = pair.read(|tx| tx.queued(&scan));
    rows.into_iter().map(|(entry, task)| format!("{}={}", entry.rank, task.id)).collect()
}

fn lane(pair: &Pair, lane: &str, after: &str, upto: Option<&str>, limit: usize) -> Vec<String> {
    read(pair, &[lane], &QueueKey::All, after, upto, limit)
}

fn three(pair: &Pair) {
    pair.write(&base());
    pair.write(&[
        Write::Task(task("tk_2", "wf_1")),
        Write::Task(task("tk_3", "wf_1")),
        Write::Queue(entry("tk_1", "a", "2")),
        Write::Queue(entry("tk_2", "a", "1")),
        Write::Queue(entry("tk_3", "b", "0")),
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

pub fn several_lanes_are_read_as_one(pair: &Pair) {
    three(pair);
    let both = |after: &str, limit| read(pair, &["a", "b"], &QueueKey::All, after, None, limit);
    assert_eq!(both("", 0), ["0=tk_3", "1=tk_2", "2=tk_1"]);
    assert_eq!(both("", 2), ["0=tk_3", "1=tk_2"]);
    assert_eq!(both("0", 1), ["1=tk_2"]);
}

pub fn a_task_queues_once(pair: &Pair) {
    three(pair);
    pair.write(&[Write::Queue(entry("tk_1", "b", "3")), Write::DropQueue(TaskId::known("tk_2"))]);
    assert!(lane(pair, "a", "", None, 0).is_empty());
    assert_eq!(lane(pair, "b", "", None, 0), ["0=tk_3", "3=tk_1"]);
}

pub fn a_lane_is_read_by_workflow_worktree_and_label(pair: &Pair) {
    three(pair);
    pair.write(&[Write::Workflow(workflow("wf_2")), Write::Task(task("tk_4", "wf_2"))]);
    let labelled = |task: &str, rank: &str, worktree: &str, labels: &[&str]| QueueEntry {
        worktree: Some(worktree.into()),
        labels: labels.iter().map(ToString::to_string).collect(),
        ..entry(task, "a", rank)
    };
    let other = QueueEntry { workflow: WorkflowId::known("wf_2"), ..labelled("tk_4", "3", "w", &["x"]) };
    pair.write(&[
        Write::Queue(labelled("tk_1", "2", "w", &["x", "y"])),
        Write::Queue(labelled("tk_2", "1", "main", &["y"])),
        Write::Queue(other.clone()),
    ]);
    let by = |key: QueueKey, after: &str, limit| read(pair, &["a"], &key, after, None, limit);
    let label = |word: &str| by(QueueKey::Label(word.into()), "", 0);
    assert_eq!(label("x"), ["2=tk_1", "3=tk_4"]);
    assert_eq!(label("y"), ["1=tk_2", "2=tk_1"]);
    assert!(label("z").is_empty());
    assert_eq!(by(QueueKey::Label("y".into()), "", 1), ["1=tk_2"]);
    assert_eq!(by(QueueKey::Label("y".into()), "1", 0), ["2=tk_1"]);
    assert_eq!(by(QueueKey::Worktree("w".into()), "", 0), ["2=tk_1", "3=tk_4"]);
    assert_eq!(by(QueueKey::Workflow(WorkflowId::known("wf_1")), "", 0), ["1=tk_2", "2=tk_1"]);
    assert!(read(pair, &["b"], &QueueKey::Label("x".into()), "", None, 0).is_empty());
    // Where a task queues and what it is labelled changes, and it leaves.
    pair.write(&[
        Write::Queue(labelled("tk_1", "4", "main", &["z"])),
        Write::Queue(QueueEntry { lane: "b".into(), ..labelled("tk_2", "5", "main", &["y"]) }),
        Write::DropQueue(other.task),
    ]);
    assert!(label("x").is_empty() && label("y").is_empty());
    assert_eq!(label("z"), ["4=tk_1"]);
    assert_eq!(read(pair, &["a", "b"], &QueueKey::Label("y".into()), "", None, 0), ["5=tk_2"]);
    assert_eq!(by(QueueKey::Worktree("main".into()), "", 0), ["4=tk_1"]);
    assert!(by(QueueKey::Workflow(WorkflowId::known("wf_2")), "", 0).is_empty());
}

pub fn what_a_claim_takes_leaves_every_index(pair: &Pair) {
    three(pair);
    let labelled = QueueEntry { labels: vec!["x".into()], worktree: Some("w".into()), ..entry("tk_1", "a", "2") };
    pair.write(&[Write::Queue(labelled.clone())]);
    let keys = [QueueKey::Label("x".into()), QueueKey::Worktree("w".into())];
    let lanes = ["a".to_owned(), "b".to_owned()];
    let mut tx = pair.writer.begin(Access::Write).expect("a writer begins");
    for key in &keys {
        let scan = QueueScan { lanes: &lanes, key, after: "", upto: None, limit: 1, taking: true };
        let found = tx.queued(&scan).expect("an answer");
        let found: Vec<_> = found.iter().map(|(entry, _)| entry).collect();
        assert_eq!(found, [&labelled]);
    }
    tx.write_derived(&[Write::DropQueue(labelled.task)]).expect("a row is taken away");
    tx.commit().expect("a writer commits");
    for key in &keys {
        assert!(read(pair, &["a", "b"], key, "", None, 0).is_empty());
    }
    assert_eq!(read(pair, &["a", "b"], &QueueKey::All, "", None, 0), ["0=tk_3", "1=tk_2"]);
}

pub fn lanes_are_found_by_how_their_names_begin(pair: &Pair) {
    three(pair);
    pair.write(&[
        Write::Queue(entry("tk_1", "a+[\"gpu\"]", "2")),
        Write::Queue(entry("tk_2", "a+[\"gpu\",\"ü\"]", "1")),
        Write::Queue(entry("tk_3", "a/wf_1+[\"gpu\"]", "0")),
    ]);
    let lanes = |prefixes: &[&str], limit| {
        let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
        pair.read(|tx| tx.lanes(&prefixes, limit))
    };
    assert_eq!(lanes(&["a+"], 0), ["a+[\"gpu\",\"ü\"]", "a+[\"gpu\"]"]);
    assert_eq!(lanes(&["a+"], 1), ["a+[\"gpu\",\"ü\"]"]);
    assert_eq!(lanes(&["a/wf_1+", "a+"], 0).len(), 3);
    assert!(lanes(&["b"], 0).is_empty());
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
