//! Fills a store with ready tasks.

use std::path::Path;

use toft::{
    Config, Error, Store, Toft,
    flow::{Plan, PlanTask},
};

/// A store at `path` with `count` ready tasks in workflows of up to 1,000, made through the library.
pub fn fill(path: &Path, count: usize) -> Result<Toft, Error> {
    let toft = open(path)?;
    add(&toft, count)?;
    Ok(toft)
}

/// Opens or makes the store at `path`, outside of any repository.
pub fn open(path: &Path) -> Result<Toft, Error> {
    let dir = path.parent().map(Path::to_owned);
    Toft::with(Config { store: Some(Store::new_path(path)), dir, agent: Some("bench".into()), ..Config::default() })
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
        toft.start_flow(&Plan { title: format!("flow {start}"), tasks, ..Plan::default() })?;
    }
    Ok(())
}
