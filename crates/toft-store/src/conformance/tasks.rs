//! Tasks, workflows, dependencies, checkpoints: lists and their order.

use toft_core::{
    change::Write,
    flow::{Dependency, DependencyKind, Source, Task, TaskState, TaskStatus, Workflow, WorkflowStatus},
    id::{RepositoryId, TaskId, WorkflowId},
    repository::{Place, Scope},
    store::{TaskQuery, WorkflowQuery},
};

use super::{
    Pair,
    fields::{at, base, checkpoint, task, workflow},
};

fn with_status(id: &str, workflow: &str, order: u32, status: TaskStatus) -> Task {
    let mut task = task(id, workflow);
    task.order = order;
    task.created = at(i64::from(order));
    task.state = TaskState { status, open_blockers: 0, ..task.state };
    task
}

fn fill(pair: &Pair) {
    let other = Place { repository: Some(RepositoryId::known("rp_b")), worktree: Some("main".into()) };
    pair.write(&[Write::Workflow(workflow("wf_1")), Write::Workflow(workflow("wf_2"))]);
    pair.write(&[
        Write::Task(with_status("tk_c", "wf_1", 1, TaskStatus::Pending)),
        Write::Task(with_status("tk_b", "wf_1", 2, TaskStatus::Done)),
        Write::Task(with_status("tk_a", "wf_1", 3, TaskStatus::Failed)),
        Write::Task(Task { place: other, ..with_status("tk_d", "wf_2", 4, TaskStatus::Failed) }),
    ]);
}

pub fn tasks_are_listed_by_workflow_status_and_place(pair: &Pair) {
    fill(pair);
    let ids = |query: TaskQuery| {
        let rows = pair.read(|tx| tx.tasks(&query));
        rows.into_iter().map(|task| task.id.to_string()).collect::<Vec<_>>()
    };
    let in_flow = |statuses: &[TaskStatus]| TaskQuery {
        workflow: Some(WorkflowId::known("wf_1")),
        statuses: statuses.to_vec(),
        ..TaskQuery::default()
    };
    assert_eq!(ids(in_flow(&[])), ["tk_c", "tk_b", "tk_a"]);
    assert_eq!(ids(in_flow(&[TaskStatus::Pending, TaskStatus::Done])), ["tk_c", "tk_b"]);
    assert_eq!(ids(TaskQuery::default()), ["tk_d", "tk_a", "tk_b", "tk_c"]);
    assert_eq!(ids(TaskQuery { limit: 2, ..TaskQuery::default() }), ["tk_d", "tk_a"]);
    let failed = TaskQuery { statuses: vec![TaskStatus::Failed], ..TaskQuery::default() };
    assert_eq!(ids(failed.clone()), ["tk_d", "tk_a"]);
    let scope = Scope { repository: Some(RepositoryId::known("rp_b")), worktree: None };
    assert_eq!(ids(TaskQuery { scope: scope.clone(), ..failed }), ["tk_d"]);
    assert_eq!(ids(TaskQuery { scope, ..TaskQuery::default() }), ["tk_d"]);
    let scope = Scope { repository: None, worktree: Some("side".into()) };
    assert_eq!(ids(TaskQuery { scope, ..TaskQuery::default() }), ["tk_a", "tk_b", "tk_c"]);
}

pub fn the_workflow_on_an_issue_and_those_its_ledger_was_not_told_of_are_found(pair: &Pair) {
    let on = |id: &str, issue: &str, status, ledger_updated| {
        let source = Source::Issue { id: issue.into(), ledger: "branch".into() };
        Write::Workflow(Workflow { source, status, ledger_updated, ..workflow(id) })
    };
    pair.write(&[
        on("wf_1", "tf-a", WorkflowStatus::Abandoned, true),
        on("wf_2", "tf-a", WorkflowStatus::Failed, false),
        on("wf_3", "tf-a", WorkflowStatus::Paused, true),
        on("wf_6", "tf-c", WorkflowStatus::Running, false),
        on("wf_4", "tf-b", WorkflowStatus::Completed, false),
        Write::Workflow(workflow("wf_5")),
    ]);
    let live = |issue: &str| pair.read(|tx| tx.workflow_of_issue(issue)).map(|workflow| workflow.id.to_string());
    assert_eq!(live("tf-a").as_deref(), Some("wf_3"));
    assert_eq!(live("tf-b"), None);
    let ledger_pending = |limit| {
        let rows = pair.read(|tx| tx.ledger_pending(None, limit));
        rows.into_iter().map(|workflow| workflow.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ledger_pending(9), ["wf_2", "wf_4", "wf_6"]);
    assert_eq!(ledger_pending(1), ["wf_2"]);
    let elsewhere = RepositoryId::known("rp_nowhere");
    assert!(pair.read(|tx| tx.ledger_pending(Some(&elsewhere), 9)).is_empty());
    pair.write(&[
        on("wf_3", "tf-a", WorkflowStatus::Completed, false),
        on("wf_2", "tf-a", WorkflowStatus::Failed, true),
    ]);
    assert_eq!(live("tf-a"), None);
    assert_eq!(ledger_pending(9), ["wf_3", "wf_4", "wf_6"]);
}

pub fn workflows_are_listed_newest_first(pair: &Pair) {
    let made = |id: &str, n, status| Write::Workflow(Workflow { created: at(n), status, ..workflow(id) });
    pair.write(&[
        made("wf_old", 1, WorkflowStatus::Running),
        made("wf_new", 3, WorkflowStatus::Completed),
        made("wf_mid", 2, WorkflowStatus::Running),
    ]);
    let ids = |statuses: &[WorkflowStatus], limit| {
        let query = WorkflowQuery { statuses: statuses.to_vec(), limit, ..WorkflowQuery::default() };
        let rows = pair.read(|tx| tx.workflows(&query));
        rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[], 0), ["wf_new", "wf_mid", "wf_old"]);
    assert_eq!(ids(&[WorkflowStatus::Running], 1), ["wf_mid"]);
}

pub fn workflows_are_seen_from_each_repository(pair: &Pair) {
    let (here, there) = (RepositoryId::known("rp_here"), RepositoryId::known("rp_there"));
    let place = |id: &RepositoryId| Place { repository: Some(id.clone()), worktree: Some("main".into()) };
    let made = |id: &str, repositories: &[&RepositoryId]| {
        let (place, repositories) = (place(&here), repositories.iter().map(|id| (*id).clone()).collect());
        Write::Workflow(Workflow { place, repositories, ..workflow(id) })
    };
    pair.write(&[made("wf_both", &[&here, &there]), made("wf_one", &[&here])]);
    let ids = |repository: &RepositoryId, worktree: Option<&str>| {
        let scope = Scope { repository: Some(repository.clone()), worktree: worktree.map(str::to_owned) };
        let rows = pair.read(|tx| tx.workflows(&WorkflowQuery { scope: scope.clone(), ..WorkflowQuery::default() }));
        let mut ids: Vec<_> = rows.into_iter().map(|row| row.id.to_string()).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&here, None), ["wf_both", "wf_one"]);
    assert_eq!(ids(&there, None), ["wf_both"]);
    assert_eq!(ids(&here, Some("main")), ["wf_both", "wf_one"]);
    assert!(ids(&there, Some("main")).is_empty());
}

pub fn progress_counts_tasks_by_status(pair: &Pair) {
    fill(pair);
    let id = WorkflowId::known("wf_1");
    let counts = [(TaskStatus::Pending, 1), (TaskStatus::Done, 1), (TaskStatus::Failed, 1)];
    assert_eq!(pair.read(|tx| tx.progress(&id)), counts);
    assert!(pair.read(|tx| tx.has_unblocked(&id)));
    let blocked = Task { state: TaskState { open_blockers: 1, ..task("x", "y").state }, ..task("x", "y") };
    pair.write(&[Write::TaskState(TaskId::known("tk_c"), TaskState { status: TaskStatus::Pending, ..blocked.state })]);
    assert!(!pair.read(|tx| tx.has_unblocked(&id)));
}

pub fn dependencies_come_with_their_targets_status(pair: &Pair) {
    fill(pair);
    let edge = |on: &str, kind| Dependency { task: TaskId::known("tk_c"), on: TaskId::known(on), kind };
    let edges = [
        edge("tk_a", DependencyKind::Blocks),
        edge("tk_a", DependencyKind::Informs),
        edge("tk_nowhere", DependencyKind::Blocks),
    ];
    pair.write(&edges.clone().map(Write::Dependency));
    pair.write(&[Write::Dependency(edges[0].clone())]);
    let failed = Some(TaskStatus::Failed);
    let found = pair.read(|tx| tx.dependencies(&TaskId::known("tk_c")));
    assert_eq!(found, [(edges[0].clone(), failed), (edges[1].clone(), failed), (edges[2].clone(), None)]);
    assert_eq!(pair.read(|tx| tx.dependents(&TaskId::known("tk_a"))), edges[..2]);
    pair.write(&[Write::DropDependency(edges[0].clone())]);
    assert_eq!(pair.read(|tx| tx.dependents(&TaskId::known("tk_a"))), edges[1..2]);
}

pub fn ids_are_found_by_prefix(pair: &Pair) {
    fill(pair);
    pair.write(&base());
    assert_eq!(pair.read(|tx| tx.ids("tk_", 3)), ["tk_1", "tk_a", "tk_b"]);
    assert_eq!(pair.read(|tx| tx.ids("wf_", 9)), ["wf_1", "wf_2"]);
    assert_eq!(pair.read(|tx| tx.ids("ag_1", 9)), ["ag_1"]);
    assert!(pair.read(|tx| tx.ids("tk_%", 9)).is_empty());
}

pub fn checkpoints_come_newest_first(pair: &Pair) {
    pair.write(&base());
    pair.write(&[1, 2, 3].map(|seq| Write::Checkpoint(checkpoint(seq))));
    let seqs = |limit| {
        let rows = pair.read(|tx| tx.checkpoints(&TaskId::known("tk_1"), limit));
        rows.into_iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(0), [3, 2, 1]);
    assert_eq!(seqs(1), [3]);
}
