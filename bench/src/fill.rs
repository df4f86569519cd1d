//! A repository with a store full of ready tasks.

use std::{path::Path, process::Command};

use toft::{
    Config, Error, Toft,
    flow::{PlanTask, WorkflowPlan},
};

/// A git repository at `dir` with `count` ready tasks in workflows of up to 1,000, made through the library.
pub fn fill(dir: &Path, count: usize) -> Result<Toft, Error> {
    std::fs::create_dir_all(dir).expect("a directory can be made");
    let git = Command::new("git").args(["init", "-q"]).current_dir(dir).status();
    assert!(git.is_ok_and(|status| status.success()), "git init");
    let config = Config { dir: Some(dir.to_owned()), agent: Some("bench".into()), ..Config::default() };
    let (toft, _) = Toft::init(&config, false)?;
    add(&toft, count)?;
    Ok(toft)
}

/// Opens the store of the repository at `dir`.
pub fn open(dir: &Path, agent: &str) -> Result<Toft, Error> {
    Toft::with(Config { dir: Some(dir.to_owned()), agent: Some(agent.into()), ..Config::default() })
}

/// The lane of the repository's queue.
pub fn lane(toft: &Toft) -> String {
    toft.scope().repository.map(|id| id.to_string()).unwrap_or_default()
}

/// Adds `count` ready tasks.
pub fn add(toft: &Toft, count: usize) -> Result<(), Error> {
    const EACH: usize = 1_000;
    for start in (0..count).step_by(EACH) {
        let tasks = (start..count.min(start + EACH))
            .map(|n| PlanTask {
                name: format!("task {n}"),
                brief: "Do what the plan says, then say how it went in two sentences.".into(),
                ..PlanTask::default()
            })
            .collect();
        toft.start_flow(&WorkflowPlan { title: format!("flow {start}"), tasks, ..WorkflowPlan::default() })?;
    }
    Ok(())
}
