//! A week of a busy team on one store: a thousand agents a day come and go, fifty thousand tasks are done. How large the
//! store is and how long each command takes, at the start and at the end.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use toft_core::{
    checkpoint::CheckpointKind,
    flow::{Evidence, PlanTask, Source, WorkflowPlan},
    retention::RetentionKind,
    store::Store as _,
    testing::{ManualClock, Stage},
    time::{Now, Tick, Timestamp},
    verbs::{
        claim,
        finish::{self, How},
        flow, gc, save, send,
    },
};
use toft_store::SqliteStore;

/// What each command is measured with: medians of so many runs.
const RUNS: usize = 9;
/// A day, in milliseconds.
const DAY: u64 = 86_400_000;

pub(crate) fn run(days: u64, agents: u64, tasks: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let repo = dir.path().join("repo");
    fs::create_dir(&repo).expect("a directory");
    git(&repo, &["init", "-q", "-b", "main"]);
    git(&repo, &["commit", "-q", "--allow-empty", "-m", "first"]);
    toft(&repo, &["init"]);
    let before = measure(&repo);
    let file = repo.join(".git/toft/toft.db");
    let small = size(&file);
    let begun = Instant::now();
    let mut sizes = Vec::new();
    {
        let clock = ManualClock::default();
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |at| at.as_millis() as u64);
        let at = |ms: u64| Now {
            wall: Timestamp((now - days * DAY + ms) as i64),
            tick: Tick { epoch: "a week".into(), ms: ms as i64 },
        };
        let store = Arc::new(SqliteStore::open_with(&file, Arc::new(clock.clone())).expect("a store"));
        clock.set(at(0));
        let mut stage = Stage::on(Arc::clone(&store) as Arc<dyn toft_core::store::Store>, clock.clone());
        stage.policy.ttl = Duration::from_secs(90);
        for day in 0..days {
            one_day(&stage, day, agents, tasks, |ms| clock.set(at(day * DAY + ms)));
            forget(&stage, store.as_ref());
            store.reclaim(Instant::now() + Duration::from_secs(60)).expect("space is given back");
            sizes.push(size(&file));
        }
    }
    println!("{days} days, {agents} agents and {tasks} tasks a day, simulated in {:.0?}", begun.elapsed());
    println!("store: {:.1} MB at the start; {} MB after each day", small, list(&sizes));
    println!("\n| command | at the start | at the end | ratio |\n| --- | --- | --- | --- |");
    for ((name, first), (_, last)) in before.into_iter().zip(measure(&repo)) {
        println!("| `toft {name}` | {first:.2?} | {last:.2?} | {:.2} |", last.as_secs_f64() / first.as_secs_f64());
    }
}

fn one_day(stage: &Stage, day: u64, agents: u64, tasks: u64, set: impl Fn(u64)) {
    for n in 0..tasks {
        set(n * (DAY / tasks));
        if n % 50 == 0 {
            let plan = |n| PlanTask {
                name: format!("task {n}"),
                brief: "Do it as the brief says. ".repeat(8),
                ..PlanTask::default()
            };
            let plan = WorkflowPlan {
                title: format!("day {day}, part {n}"),
                tasks: (0..50).map(plan).collect(),
                ..WorkflowPlan::default()
            };
            let source = Source::Prompt { text: plan.title.clone() };
            stage.perform("lead", flow::New { plan, source, hold: false }).expect("a plan");
        }
        let agent = format!("agent-{day}-{}", n % agents);
        let request = claim::Request { scope: stage.scope(), ..claim::Request::default() };
        let held = stage.claim_with(&agent, request).expect("there is work");
        let (id, fence) = (Some(held.task.id.to_string()), Some(held.lease.fence()));
        let note = save::Request {
            id: id.clone(),
            fence: fence.clone(),
            message: Some(format!("{agent} is half way through; the rest is in the branch")),
            kind: CheckpointKind::Progress,
            ..save::Request::default()
        };
        stage.perform(&agent, note).expect("a checkpoint");
        if n % 20 == 0 {
            let letter = send::Request { to: "lead".into(), body: "Which one?".into(), ..send::Request::default() };
            stage.perform(&agent, letter).expect("a message");
        }
        let how = How::Done(Evidence::Commit("0123456789abcdef".into()));
        let end = finish::Request { id, fence, how, message: "done".into(), ..finish::Request::default() };
        stage.perform(&agent, end).expect("an end");
    }
}

/// What `toft gc --data` does, with a retention of two days.
fn forget(stage: &Stage, store: &SqliteStore) {
    let before = stage.clock.now().wall.minus(Duration::from_secs(2 * 86_400));
    let mut gone = Vec::new();
    for what in RetentionKind::ALL.into_iter().filter(|what| *what != RetentionKind::Blobs) {
        let mut count = 0;
        loop {
            let batch = store.forget(what, before, 5_000).expect("rows are forgotten");
            count += batch as u64;
            if batch < 5_000 {
                break;
            }
        }
        if count > 0 {
            gone.push((what, count));
        }
    }
    stage.perform("lead", gc::Request { gone }).expect("history says so");
}

/// The median time of everyday commands.
fn measure(repo: &Path) -> Vec<(String, Duration)> {
    toft(repo, &["flow", "new", "probe", "--task", "a", "--task", "b", "--task", "c"]);
    let commands: [&[&str]; 8] = [
        &["ready"],
        &["list", "tasks"],
        &["status"],
        &["history"],
        &["agent", "list"],
        &["save", "-m", "half"],
        &["add", "an issue"],
        &["prime"],
    ];
    let mut rows = vec![("claim".to_owned(), median(1, || toft(repo, &["claim", "--as", "probe"])))];
    for words in commands {
        let words: Vec<&str> = words.iter().copied().chain(["--as", "probe"]).collect();
        rows.push((words[..words.len() - 2].join(" "), median(RUNS, || toft(repo, &words))));
    }
    let finish = ["finish", "--no-change", "a probe", "--as", "probe"];
    rows.push(("finish".to_owned(), median(1, || toft(repo, &finish))));
    rows
}

fn median(runs: usize, mut once: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let begun = Instant::now();
            once();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn toft(repo: &Path, args: &[&str]) {
    let mut command = Command::new(crate::toft_bin());
    command.args(args).current_dir(repo).env("HOME", repo).env_remove("TOFT_STORE").stdout(Stdio::null());
    assert!(command.status().is_ok_and(|status| status.success()), "toft {args:?}");
}

fn git(repo: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]).args(args).current_dir(repo);
    assert!(command.status().is_ok_and(|status| status.success()), "git {args:?}");
}

/// The store with its log, in megabytes.
fn size(file: &Path) -> f64 {
    let log = file.with_extension("db-wal");
    [file, &log].iter().filter_map(|path| fs::metadata(path).ok()).map(|seen| seen.len() as f64 / 1e6).sum()
}

fn list(sizes: &[f64]) -> String {
    sizes.iter().map(|size| format!("{size:.1}")).collect::<Vec<_>>().join(", ")
}
