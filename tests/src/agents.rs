//! Scripted agents, runners, and what they leave behind.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{Home, until};

/// An executable file in a home.
#[cfg(unix)]
pub fn script(home: &Home, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = home.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Starts a runner that nobody listens to.
pub fn start(home: &Home, repo: &Path, words: &[&str]) -> Child {
    home.start(repo, &[&["run"], words].concat())
}

/// Processes that something in this home started.
pub fn left_over(home: &Home) -> Vec<String> {
    let sign = format!("TOFT_STORY={}", home.path().display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|word| word == sign.as_bytes()) {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Waits until nothing that was started in this home is left.
pub fn none_left(home: &Home) {
    let begun = Instant::now();
    while !left_over(home).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "still there: {:#?}", left_over(home));
        thread::sleep(Duration::from_millis(50));
    }
}

/// A seed, said so that a run can be told again.
pub fn seed() -> u64 {
    let seed = std::env::var("TOFT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    eprintln!("TOFT_SEED={seed}");
    seed
}

/// What a command says, as data.
pub fn data(home: &Home, repo: &Path, words: &[&str]) -> Value {
    home.toft(repo, &[words, &["--json"]].concat()).data()
}

/// A running workflow of these tasks: its id, and theirs.
pub fn start_flow(home: &Home, repo: &Path, tasks: &[&str], more: &[&str]) -> (String, Vec<String>) {
    let mut words = vec!["flow", "new", "Ship it"];
    tasks.iter().for_each(|task| words.extend(["--task", task]));
    let made = data(home, repo, &[&words, more].concat());
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    (id(&made["workflow"]), made["tasks"].as_array().unwrap().iter().map(id).collect())
}

/// A home with `toft` on its path, and a repository with these issues.
pub fn started(titles: &[&str]) -> (Home, PathBuf) {
    started_in(Home::new(), titles)
}

/// The same in a given home.
pub fn started_in(mut home: Home, titles: &[&str]) -> (Home, PathBuf) {
    home.toft_on_path();
    home.set("TOFT_RETRY_BACKOFF", "50ms");
    let repo = home.repo("api");
    for title in titles {
        home.toft(&repo, &["add", title]).ok();
    }
    (home, repo)
}

/// The first issue there is.
pub fn issue(home: &Home, repo: &Path) -> Value {
    data(home, repo, &["list", "--all"])[0].clone()
}

/// Waits until a file is there, and gives what is in it.
pub fn appears(path: &Path) -> String {
    let mut text = String::new();
    until(20, &format!("{} appears", path.display()), || {
        text = fs::read_to_string(path).unwrap_or_default();
        !text.is_empty()
    });
    text
}

/// Sends a signal.
pub fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// The branch of the newest workspace for a task or an issue.
pub fn branch_of(home: &Home, repo: &Path, id: &str) -> String {
    let all = data(home, repo, &["ws", "list", "--all", "--limit", "10000"]);
    let row = all.as_array().unwrap().iter().find(|row| row["task"] == id || row["issue"] == id);
    row.unwrap_or_else(|| panic!("{id} has no workspace: {all}"))["branch"].as_str().unwrap().to_owned()
}
