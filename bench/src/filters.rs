//! Claims with a filter beside ordinary claims, on a queue in which only the last tasks match.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use toft::{
    ClaimQuery, Toft, Worker,
    flow::{PlanTask, WorkflowPlan},
    id::WorkflowId,
};
use toft_bench::{fill, timing};

/// How often each claim is measured.
const ROUNDS: usize = 200;

pub(crate) fn run(sizes: &[usize]) {
    header();
    for size in sizes {
        let dir = tempfile::tempdir().expect("a directory");
        let repo = dir.path().join("repo");
        let toft = fill::fill(&repo, *size).expect("a full store");
        let linked = link(&repo, &dir.path().join("linked"));
        let other = fill::open(&linked, "bench").expect("a store");
        measure(&format!("SQLite, {size}"), &toft, &other);
    }
}

/// The columns of [`measure`].
pub(crate) fn header() {
    println!(
        "\n| queued | ordinary claim | label nobody has | label of the last | capability of the last | worktree of the last | workflow of the last |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
}

/// A second worktree of the repository at `repo`.
pub(crate) fn link(repo: &Path, at: &Path) -> std::path::PathBuf {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]).args(args).current_dir(repo);
        assert!(command.output().is_ok_and(|output| output.status.success()), "git {args:?}");
    };
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&["worktree", "add", "-q", &at.display().to_string()]);
    at.to_owned()
}

/// Adds the last tasks, measures one claim of each kind in turn, and prints the medians; `other` is another worktree.
pub(crate) fn measure(what: &str, toft: &Toft, other: &Toft) {
    add(toft, PlanTask { labels: vec!["last".into()], ..PlanTask::default() });
    add(toft, PlanTask { requires: vec!["last".into()], priority: Some(0), ..PlanTask::default() });
    add(other, PlanTask::default());
    let workflow = add(toft, PlanTask::default());
    let me = toft.agent("bench").register().expect("an agent");
    let able = toft.agent("able").can("last").register().expect("an agent");
    let queries = [
        (&me, ClaimQuery::ready(), true),
        (&me, ClaimQuery::ready().label("nobody"), false),
        (&me, ClaimQuery::ready().label("last"), true),
        (&able, ClaimQuery::ready(), true),
        (&me, ClaimQuery::ready().scope(other.here()), true),
        (&me, ClaimQuery::task(workflow.as_str()), true),
    ];
    let mut times = vec![Vec::new(); queries.len()];
    for _ in 0..ROUNDS {
        for ((worker, query, found), times) in queries.iter().zip(&mut times) {
            times.push(claim(worker, query, *found));
        }
    }
    let medians: Vec<_> = times.into_iter().map(timing::median).collect();
    let ratios = medians[1..].iter().map(|median| format!("{:.2}", median.as_secs_f64() / medians[0].as_secs_f64()));
    println!("| {what} | {:.2?} | {} |", medians[0], ratios.collect::<Vec<_>>().join(" | "));
}

/// One task that queues behind all others, in a workflow of its own.
fn add(toft: &Toft, task: PlanTask) -> WorkflowId {
    let task = PlanTask { name: "last".into(), priority: task.priority.or(Some(4)), ..task };
    let plan = WorkflowPlan { title: "last".into(), tasks: vec![task], ..WorkflowPlan::default() };
    toft.start_flow(&plan).expect("a flow").workflow.id
}

/// How long one claim took; what it took is given back.
fn claim(worker: &Worker<'_>, query: &ClaimQuery, found: bool) -> Duration {
    let start = Instant::now();
    let job = worker.claim(query.clone()).expect("a claim");
    let took = start.elapsed();
    assert_eq!(job.is_some(), found, "{query:?}");
    if let Some(job) = job {
        job.release("measured").expect("a release");
    }
    took
}
