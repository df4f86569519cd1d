//! A holder that was stopped, lost or moved changes nothing; a living one keeps what it holds.

use std::thread::sleep;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use toft_stories::prelude::*;

/// A process to hold a lease.
struct Holder(ChildGuard);

impl Holder {
    fn start() -> Self {
        Self(ChildGuard(Command::new("sleep").arg("600").spawn().unwrap()))
    }

    fn pid(&self) -> String {
        self.0.0.id().to_string()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.0.id() as i32), signal).unwrap();
    }
}

fn one_task(home: &Home) -> std::path::PathBuf {
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "only"]).ok();
    repo
}

/// Every verb a holder has, tried under an old fence; each must be refused with 5 and change nothing.
fn refuses_every_verb(home: &Home, repo: &Path, task: &str, fence: &str) {
    let before = home.toft(repo, &["history", "--json", "--limit", "1000"]).data();
    let env = [("TOFT_TASK", task), ("TOFT_FENCE", fence), ("TOFT_AGENT", "old")];
    for args in [
        &["save", task, "-m", "late"][..],
        &["save", task],
        &["save", task, "--key", "k", "--value", "1"],
        &["finish", task, "-m", "late", "--no-change", "abc"],
        &["finish", task, "failed", "-m", "late"],
        &["finish", task, "release"],
        &["finish", task, "handoff", "-m", "late"],
        &["finish", task, "waiting", "-m", "late?"],
        &["agent", "send", "human", "late", "--task", task],
    ] {
        assert!(home.toft_with(repo, &env, args).fails(5).contains("fence"), "{args:?}");
    }
    assert_eq!(home.toft(repo, &["history", "--json", "--limit", "1000"]).data(), before);
}

fn fence_of(claim: &serde_json::Value) -> (String, String) {
    let lease = &claim["lease"];
    let fence = format!("{}.{}", lease["fence"], lease["id"].as_str().unwrap());
    (claim["task"]["id"].as_str().unwrap().to_owned(), fence)
}

#[test]
fn a_holder_stopped_past_its_cap_is_refused_when_it_wakes() {
    let (home, repo) = Home::with(one_task);
    let holder = Holder::start();
    let claim = ["claim", "--as", "old", "--ttl", "500ms", "--cap", "1s", "--pid", &holder.pid(), "--json"];
    let (task, fence) = fence_of(&home.toft(&repo, &claim).data());
    holder.signal(Signal::SIGSTOP);
    sleep(Duration::from_millis(1_200));
    home.toft(&repo, &["claim", &task, "--as", "new"]).ok();
    home.toft(&repo, &["finish", &task, "--as", "new", "-m", "done", "--no-change", "abc"]).ok();
    holder.signal(Signal::SIGCONT);
    refuses_every_verb(&home, &repo, &task, &fence);
}

#[test]
fn a_living_holder_on_this_host_keeps_its_lease_past_its_time() {
    let home = Home::new();
    if home.asks_a_server() {
        return; // A server sees no processes: a lease is renewed, or ends.
    }
    let repo = one_task(&home);
    let holder = Holder::start();
    let claim = ["claim", "--as", "old", "--ttl", "300ms", "--cap", "1h", "--pid", &holder.pid(), "--json"];
    let (task, fence) = fence_of(&home.toft(&repo, &claim).data());
    sleep(Duration::from_millis(700));
    home.toft(&repo, &["claim", "--as", "new"]).fails(6);
    home.toft(&repo, &["claim", &task, "--as", "new"]).fails(5);
    assert_eq!(home.toft(&repo, &["ready", "--json"]).data(), serde_json::json!([]));
    home.toft_with(&repo, &[("TOFT_FENCE", &fence)], &["save", &task, "-m", "still here", "--as", "old"]).ok();
}

#[test]
fn a_killed_holder_frees_its_task_at_the_next_look() {
    let (home, repo) = Home::with(one_task);
    let holder = Holder::start();
    let claim = ["claim", "--as", "old", "--ttl", "1h", "--pid", &holder.pid(), "--json"];
    let (task, fence) = fence_of(&home.toft(&repo, &claim).data());
    home.toft(&repo, &["claim", "--as", "new"]).fails(6);
    drop(holder);
    // A server hears of it with the claim.
    if !home.asks_a_server() {
        assert_eq!(home.toft(&repo, &["ready", "--json"]).data()[0]["id"], task.as_str());
    }
    home.toft(&repo, &["claim", "--as", "new"]).ok();
    refuses_every_verb(&home, &repo, &task, &fence);
}

/// Whoever asks for work takes back what others lost, and a ledger hears of it though there is nothing to take.
#[test]
fn an_issue_that_failed_for_good_says_so_at_once() {
    let (home, repo) = Home::with(|home| home.git("repo"));
    home.toft(&repo, &["init"]).ok();
    home.toft(&repo, &["add", "Deadly"]).ok();
    for _ in 0..3 {
        let holder = Holder::start();
        home.toft(&repo, &["claim", "--as", "victim", "--pid", &holder.pid()]).ok();
    }
    home.toft(&repo, &["claim"]).fails(6);
    let issue = home.toft(&repo, &["list", "--json"]).data()[0].clone();
    assert_eq!(issue["comments"].as_array().map(Vec::len), Some(1), "{issue}");
}

#[test]
fn a_question_is_answered_after_its_asker_is_gone() {
    let (home, repo) = Home::with(one_task);
    let holder = Holder::start();
    home.toft(&repo, &["claim", "--as", "asker", "--pid", &holder.pid()]).ok();
    home.toft(&repo, &["finish", "waiting", "-m", "blue or red?", "--as", "asker"]).ok();
    drop(holder);
    assert!(home.toft(&repo, &["status"]).ok().contains("blue or red?"));
    home.toft(&repo, &["claim"]).fails(6);
    let task = home.toft(&repo, &["list", "-q"]).ok();
    home.toft(&repo, &["answer", task.trim(), "red"]).ok();
    home.toft(&repo, &["claim", "--as", "next"]).ok();
    assert!(home.toft(&repo, &["show", "--as", "next"]).ok().contains("task.answered"));
}

#[test]
fn a_waiting_claim_is_served_when_work_arrives() {
    let (home, repo) = Home::with_repository("api");
    let waiter = home
        .command(&repo, toft_stories::toft_bin(), &["claim", "--wait=20s", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Nothing shows that it waits.
    sleep(Duration::from_millis(300));
    let start = std::time::Instant::now();
    home.toft(&repo, &["flow", "new", "late work"]).ok();
    let output = waiter.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(start.elapsed() < Duration::from_secs(2), "served after {:?}", start.elapsed());
    home.toft(&repo, &["claim", "--wait=200ms"]).fails(6);
    assert!(home.toft(&repo, &["claim", "--wait", "200ms"]).fails(2).contains("--wait=200ms"));
}
