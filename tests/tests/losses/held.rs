//! Attacks that the core withstood, told so that it goes on withstanding them: stopped writers, full disks, crowds, races for
//! limits and cycles, killed runners.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use toft_cluster::Cluster;
use toft_stories::{
    Home,
    agents::{self, data, none_left},
    new_store_on, sized, story_server, toft_bin,
    workspaces::may_mount,
};

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// A workflow with tasks of these names; gives its id and theirs.
fn flow(home: &Home, repo: &Path, tasks: &[&str], more: &[&str]) -> (String, Vec<String>) {
    let mut args = vec!["flow", "new", "F"];
    tasks.iter().for_each(|task| args.extend(["--task", task]));
    let made = data(home, repo, &[&args, more].concat());
    let tasks = made["tasks"].as_array().unwrap().iter().map(|task| text(&task["id"])).collect();
    (text(&made["workflow"]["id"]), tasks)
}

/// Starts one command for each agent at the same time; gives how many succeeded.
fn at_once(home: &Home, repo: &Path, agents: usize, args: &[&str]) -> usize {
    let start = |n: usize| {
        let name = format!("agent{n}");
        let mut command = home.command(repo, toft_bin(), &[&["--as", &name], args].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..agents).map(start).collect();
    children.into_iter().map(|mut child| child.wait().unwrap()).filter(|status| status.success()).count()
}

fn is_whole(home: &Home, repo: &Path) {
    home.toft(repo, &["doctor"]).ok();
}

// ---- The store

/// A command that was stopped inside its write transaction; continued and ended when dropped.
struct Stopped {
    strace: Child,
    pid: Pid,
}

impl Stopped {
    fn writer(home: &Home, repo: &Path, args: &[&str]) -> Self {
        let log = home.path().join("stopped.log");
        let bin = toft_bin();
        let words = ["-f", "-o", log.to_str().unwrap(), "-e", "trace=fdatasync,fsync", "-e"];
        let inject = ["inject=fdatasync,fsync:signal=SIGSTOP:when=1", bin.to_str().unwrap()];
        let mut command = home.command(repo, "strace", &[&words[..], &inject, args].concat());
        // strace ends with what it traces, which is not known yet.
        let pid = Pid::from_raw(0);
        let mut stopped = Self { strace: command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), pid };
        let until = Instant::now() + Duration::from_secs(20);
        while stopped.pid == pid {
            let seen = fs::read_to_string(&log).unwrap_or_default();
            if let Some(line) = seen.lines().find(|line| line.contains("stopped by SIGSTOP")) {
                stopped.pid = Pid::from_raw(line.split_whitespace().next().unwrap().parse().unwrap());
            }
            assert!(Instant::now() < until, "it was never stopped: {seen}");
            thread::sleep(Duration::from_millis(20));
        }
        stopped
    }

    /// Lets it go on; whether it succeeded.
    fn goes_on(mut self) -> bool {
        kill(self.pid, Signal::SIGCONT).unwrap();
        self.strace.wait().unwrap().success()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.strace.try_wait().ok().flatten().is_none() {
            // Zero would be the whole group of this test.
            let _ = if self.pid.as_raw() > 0 { kill(self.pid, Signal::SIGKILL) } else { Ok(()) };
            let _ = self.strace.kill();
        }
        let _ = self.strace.wait();
    }
}

#[test]
fn behind_a_stopped_writer_others_wait_their_patience_and_are_told_which_process_it_is() {
    if story_server().is_some() {
        return;
    }
    let home = Home::new();
    let repo = home.repo("api");
    let (_, tasks) = flow(&home, &repo, &["A", "B", "C"], &[]);
    let stopped = Stopped::writer(&home, &repo, &["--as", "stopped", "claim"]);
    let begun = Instant::now();
    let said = home.toft(&repo, &["--as", "other", "claim"]).fails(7);
    let waited = begun.elapsed();
    assert!((25..60).contains(&waited.as_secs()), "{waited:?}");
    assert!(said.contains(&format!("process {} (toft), which is stopped", stopped.pid)), "{said}");
    assert!(said.contains(&format!("kill -CONT {}", stopped.pid)), "{said}");
    // Reading goes on, and sees nothing of what was not committed.
    assert_eq!(home.toft(&repo, &["ready", "-q"]).ok().lines().count(), tasks.len());
    assert!(stopped.goes_on(), "what it had begun it ends");
    let claim = home.toft(&repo, &["--as", "other", "claim", "--json"]).data();
    assert_eq!(text(&claim["task"]["id"]), tasks[1]);
    is_whole(&home, &repo);
}

/// A small file system, gone when dropped.
struct Small(PathBuf);

impl Small {
    fn mounted(home: &Home, size: &str) -> Self {
        let dir = home.path().join("small");
        fs::create_dir(&dir).unwrap();
        home.run(home.path(), "mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", dir.to_str().unwrap()]);
        Self(dir)
    }

    fn fill(&self, home: &Home) {
        let filled = home.command(&self.0, "dd", &["if=/dev/zero", "of=fill", "bs=4k"]).output().unwrap();
        assert!(!filled.status.success(), "the disk is full");
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_nothing_is_half_done_and_with_space_again_everything_goes_on() {
    if !may_mount() || story_server().is_some() {
        return;
    }
    let mut home = Home::new();
    home.toft_on_path();
    home.set("TOFT_RETRY_BACKOFF", "50ms");
    let small = Small::mounted(&home, "10m");
    home.set("XDG_DATA_HOME", small.0.join("data").to_str().unwrap());
    let repo = small.0.join("repo");
    fs::create_dir(&repo).unwrap();
    home.run(&repo, "git", &["init", "-q", "-b", "main"]);
    home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", "first"]);
    home.toft(&repo, &["init"]).ok();
    for title in ["one", "two", "three", "four"] {
        home.toft(&repo, &["add", title]).ok();
    }
    let mine = text(&home.toft(&repo, &["--as", "w", "claim", "--json"]).data()["task"]["id"]);
    home.toft(&repo, &["--as", "w", "save", "-m", "before"]).ok();
    small.fill(&home);
    let said = [
        ("checkpoint", home.toft(&repo, &["--as", "w", "save", "-m", "during"])),
        ("done", home.toft(&repo, &["--as", "w", "finish", "--no-change", "x"])),
        ("claimed", home.toft(&repo, &["--as", "v", "claim"])),
        ("added", home.toft(&repo, &["add", "later"])),
        ("backup", home.toft(&repo, &["backup", small.0.join("kept").to_str().unwrap()])),
    ];
    for (what, said) in &said {
        assert!(said.code == 0 || said.err.contains("error[no_space]"), "{what}: {said:?}");
    }
    let done = |what: &str| said.iter().any(|(name, said)| *name == what && said.code == 0);
    // Nobody wants to wait for an agent that cannot be started: the runner ends and says why.
    let run = ["run", "--slots", "2", "--until-idle", "--", "sh", "-c", "date > f; git add f; git commit -qm x"];
    home.toft(&repo, &run);
    none_left(&home);
    small.free();

    let events = data(&home, &repo, &["history", "--limit", "1000"]);
    let happened = |verb: &str, actor: &str| {
        events.as_array().unwrap().iter().filter(|event| event["verb"] == verb && event["actor"] == actor).count()
    };
    assert_eq!(happened("save", "w"), 1 + usize::from(done("checkpoint")), "{events}");
    assert_eq!(happened("task.done", "w"), usize::from(done("done")), "{events}");
    assert_eq!(happened("claim", "v"), usize::from(done("claimed")), "{events}");
    assert_eq!(home.toft(&repo, &["list", "--all"]).ok().contains("later"), done("added"));
    assert!(done("backup") || !small.0.join("kept").exists(), "no half backup");
    if !done("done") {
        home.toft(&repo, &["--as", "w", "finish", &mine, "--no-change", "x"]).ok();
    }
    if done("claimed") {
        home.toft(&repo, &["--as", "v", "finish", "release"]).ok();
    }
    home.toft(&repo, &run).ok();
    let issues = data(&home, &repo, &["list", "--all"]);
    assert!(issues.as_array().unwrap().iter().all(|issue| issue["status"] == "closed"), "{issues}");
    assert_eq!(issues.as_array().unwrap().len(), 4 + usize::from(done("added")));
    is_whole(&home, &repo);
}

#[test]
fn a_full_disk_loses_no_issue_and_with_space_again_the_ledger_is_shared() {
    if !may_mount() {
        return;
    }
    let home = Home::new();
    let small = Small::mounted(&home, "8m");
    home.run(home.path(), "git", &["init", "-q", "--bare", "-b", "main", "shared.git"]);
    let repo = small.0.join("repo");
    home.run(&small.0, "git", &["init", "-q", "-b", "main", "repo"]);
    home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", "first"]);
    home.run(&repo, "git", &["remote", "add", "origin", home.path().join("shared.git").to_str().unwrap()]);
    home.toft(&repo, &["init"]).ok();
    let body = "x".repeat(500);
    let mut kept: Vec<String> =
        (0..20).map(|n| home.toft(&repo, &["add", &format!("issue {n}"), "-d", &body, "-q"]).ok()).collect();
    home.toft(&repo, &["sync"]).ok();
    for spare in [0, 20, 60, 120, 400] {
        small.fill(&home);
        let fill = fs::OpenOptions::new().write(true).open(small.0.join("fill")).unwrap();
        fill.set_len(fill.metadata().unwrap().len() - spare * 1024).unwrap();
        drop(fill);
        let added = home.toft(&repo, &["add", &format!("with {spare} KB"), "-d", &body.repeat(8), "-q"]);
        if added.code == 0 {
            kept.push(added.out.trim().to_owned());
        }
        home.toft(&repo, &["sync"]);
        home.toft(&repo, &["gc", "--ledgers"]);
        small.free();
        home.toft(&repo, &["sync"]).ok();
        home.toft(&repo, &["gc", "--ledgers"]).ok();
        let shared = home.run(home.path(), "git", &["-C", "shared.git", "show", "toft-ledger:issues.jsonl"]);
        for id in &kept {
            assert!(shared.contains(id.trim()), "{id} with {spare} KB");
        }
        assert_eq!(shared.lines().count(), kept.len(), "nothing half, nothing twice");
        home.run(&repo, "git", &["fsck", "--strict"]);
    }
}

// ---- Rules of workflows

#[test]
fn a_question_is_answered_once_however_many_answer() {
    let home = Home::new();
    let repo = home.repo("api");
    let (_, tasks) = flow(&home, &repo, &["first", "second"], &[]);
    let ask = |task: &str| {
        home.toft(&repo, &["--as", "w", "claim", task]).ok();
        let asked = data(&home, &repo, &["--as", "w", "finish", task, "waiting", "-m", "red or blue?"]);
        text(&asked["gate"]["id"])
    };
    let gate = ask(&tasks[0]);
    home.toft(&repo, &["answer", &gate, "red"]).ok();
    home.toft(&repo, &["answer", &gate, "blue"]).fails(3);
    home.toft(&repo, &["answer", &tasks[0], "blue"]).fails(3);
    let gate = ask(&tasks[1]);
    for n in 0..6 {
        home.toft(&repo, &["agent", "register", &format!("agent{n}"), "--role", "human"]).ok();
    }
    assert_eq!(at_once(&home, &repo, 6, &["answer", &gate, "red"]), 1);
    is_whole(&home, &repo);
}

#[test]
fn questions_of_work_that_was_given_up_ask_nobody_and_revive_nothing() {
    let home = Home::new();
    let repo = home.repo("api");
    let (workflow, tasks) = flow(&home, &repo, &["skipped", "abandoned"], &[]);
    for (task, question) in tasks.iter().zip(["skip me?", "abandon me?"]) {
        home.toft(&repo, &["--as", "w", "claim", task]).ok();
        home.toft(&repo, &["--as", "w", "finish", task, "waiting", "-m", question]).ok();
    }
    home.toft(&repo, &["close", &tasks[0], "-m", "no"]).ok();
    let status = home.toft(&repo, &["status"]).ok();
    assert!(!status.contains("skip me?") && status.contains("abandon me?"), "{status}");
    home.toft(&repo, &["flow", "abandon", &workflow, "-m", "no"]).ok();
    assert!(!home.toft(&repo, &["status"]).ok().contains("abandon me?"));
    home.toft(&repo, &["answer", &tasks[1], "late"]);
    home.toft(&repo, &["claim", &tasks[1]]).fails(5);
    let states = data(&home, &repo, &["list", "tasks", "--all"]);
    let states: BTreeSet<&str> = states.as_array().unwrap().iter().filter_map(|task| task["status"].as_str()).collect();
    assert_eq!(states, BTreeSet::from(["cancelled", "skipped"]));
    is_whole(&home, &repo);
}

#[test]
fn workflows_cannot_be_made_to_wait_for_each_other() {
    let home = Home::new();
    let repo = home.repo("api");
    let (_, first) = flow(&home, &repo, &["a"], &[]);
    let (_, second) = flow(&home, &repo, &["b"], &["--needs", &first[0]]);
    home.toft(&repo, &["--as", "w", "claim", &first[0]]).ok();
    for on in [&second[0], &first[0]] {
        let said = home.toft(&repo, &["--as", "w", "finish", &first[0], "waiting", "--on", on]).fails(5);
        assert!(said.contains("error[cycle]"), "{said}");
    }
    home.toft(&repo, &["--as", "w", "finish", &first[0], "release"]).ok();
    is_whole(&home, &repo);
}

#[test]
fn a_plan_that_changes_takes_nothing_from_who_is_at_work() {
    let home = Home::new();
    let repo = home.repo("api");
    let plan = |tasks: Value| {
        let path = home.path().join("plan.json");
        fs::write(&path, json!({ "title": "P", "tasks": tasks }).to_string()).unwrap();
        path.display().to_string()
    };
    let before = plan(json!([{ "name": "keep" }, { "name": "held", "brief": "v1" }, { "name": "gone" }]));
    let made = data(&home, &repo, &["flow", "new", "--file", &before]);
    let id = |name: &str| {
        let tasks = data(&home, &repo, &["list", "tasks", "--all"]);
        text(&tasks.as_array().unwrap().iter().find(|task| task["name"] == name).unwrap()["id"])
    };
    let (held, gone) = (id("held"), id("gone"));
    home.toft(&repo, &["--as", "h", "claim", &held]).ok();
    home.toft(&repo, &["--as", "g", "claim", &gone]).ok();
    let after = plan(json!([
        { "name": "keep", "needs": ["new"] },
        { "name": "held", "brief": "v2", "needs": ["new"] },
        { "name": "new", "needs": ["held"] },
    ]));
    home.toft(&repo, &["flow", "edit", &text(&made["workflow"]["id"]), "--file", &after]).ok();
    home.toft(&repo, &["--as", "h", "save", &held, "-m", "still at it"]).ok();
    home.toft(&repo, &["--as", "g", "finish", &gone, "--no-change", "done before I heard"]).ok();
    home.toft(&repo, &["--as", "h", "finish", &held, "--no-change", "x"]).ok();
    for name in ["new", "keep"] {
        let next = home.toft(&repo, &["--as", "h", "claim", "--json"]).data();
        assert_eq!(next["task"]["name"], name, "{next}");
        home.toft(&repo, &["--as", "h", "finish", "--no-change", "x"]).ok();
    }
    is_whole(&home, &repo);
}

// ---- Races on a server

fn on_server() -> Option<(Cluster, Home, PathBuf)> {
    let missing = !toft_cluster::available();
    assert!(!(missing && std::env::var_os("TOFT_TEST_ALL").is_some()), "PostgreSQL is not installed");
    if missing {
        return None;
    }
    let cluster = Cluster::start();
    let mut home = Home::new();
    home.behind_a_server(Some(&new_store_on(&cluster.url())));
    let repo = home.repo("api");
    Some((cluster, home, repo))
}

/// Each of two waits that would close a circle is allowed alone; of both at once, one is refused.
#[test]
fn two_waits_that_would_close_a_circle_are_never_both_accepted_on_a_server() {
    let Some((_cluster, home, repo)) = on_server() else { return };
    for _ in 0..sized(5, 30) {
        let one = |needs: &[&str]| flow(&home, &repo, &["t"], needs).1.remove(0);
        let (a, c) = (one(&[]), one(&[]));
        let (b, d) = (one(&["--needs", &c]), one(&["--needs", &a]));
        home.toft(&repo, &["--as", "x", "claim", &a]).ok();
        home.toft(&repo, &["--as", "y", "claim", &c]).ok();
        let wait = |agent: &str, task: &str, on: &str| {
            let mut command = home.command(&repo, toft_bin(), &["--as", agent, "finish", task, "waiting", "--on", on]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [wait("x", &a, &b), wait("y", &c, &d)].map(|child| child.wait_with_output().unwrap());
        let accepted = both.iter().filter(|output| output.status.success()).count();
        assert_eq!(accepted, 1, "{both:?}");
        let refused = both.iter().find(|output| !output.status.success()).unwrap();
        assert!(String::from_utf8_lossy(&refused.stderr).contains("error[cycle]"), "{refused:?}");
    }
    is_whole(&home, &repo);
}

#[test]
fn limits_and_single_issues_hold_against_a_crowd_on_a_server() {
    let Some((_cluster, home, repo)) = on_server() else { return };
    for _ in 0..sized(2, 5) {
        let names: Vec<String> = (0..30).map(|n| format!("t{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (workflow, _) = flow(&home, &repo, &names, &["--max-parallel", "3"]);
        assert_eq!(at_once(&home, &repo, 20, &["claim", &workflow]), 3);
        home.toft(&repo, &["flow", "abandon", &workflow, "-m", "x"]).ok();
        let issue = home.toft(&repo, &["add", "only one", "-q"]).ok();
        assert_eq!(at_once(&home, &repo, 20, &["claim", issue.trim()]), 1);
    }
    is_whole(&home, &repo);
}

// ---- Runners and ledgers

/// Two runners share a plan, and one of them is killed again and again.
#[test]
fn of_hundreds_of_issues_each_is_done_once_though_a_runner_is_killed_again_and_again() {
    const AGENT: &str = r#"#!/bin/sh
cat > /dev/null
if git cat-file -e "HEAD:did-$TOFT_TASK" 2>/dev/null; then
    toft finish -m "was done already" --evidence HEAD
    exit
fi
echo x > "did-$TOFT_TASK" && git add "did-$TOFT_TASK" && git commit -qm "$TOFT_ISSUE"
"#;
    let (count, between) = (sized(24, 500), Duration::from_millis(sized(1_500, 12_000) as u64));
    let mut home = Home::new();
    home.toft_on_path();
    home.set("TOFT_RETRY_BACKOFF", "50ms");
    let repo = home.repo("api");
    let rules = "[retry]\nmax_attempts = 200\n[workspaces]\nmost = 1000\n";
    fs::write(repo.join(".git/toft/config.toml"), rules).unwrap();
    let plan: String = (0..count).map(|n| format!("- [ ] issue number {n}\n")).collect();
    let file = home.path().join("plan.md");
    fs::write(&file, plan).unwrap();
    home.toft(&repo, &["import", "markdown", file.to_str().unwrap()]).ok();
    let agent = agents::script(&home, "agent", AGENT);
    let run = |user: &str| {
        let words = ["run", "--slots", "4", "--until-idle", "--idle", "1s", "--grace", "300ms", "--", &agent];
        let mut command = home.command(&repo, toft_bin(), &words);
        command.env("USER", user).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let begun = Instant::now();
    let mut steady = run("ana");
    let mut kills = 0;
    let status = loop {
        let mut killed = run("ben");
        thread::sleep(between);
        killed.kill().unwrap();
        killed.wait().unwrap();
        kills += 1;
        if let Some(status) = steady.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(1_200), "it never ends");
    };
    assert!(status.success(), "{status}");
    none_left(&home);
    // What the last kill left is taken back and done.
    assert!(run("ana").wait().unwrap().success());
    none_left(&home);
    eprintln!("{count} issues, {kills} kills: {:.0?}", begun.elapsed());

    let issues = data(&home, &repo, &["list", "--all", "--limit", "2000"]);
    let issues = issues.as_array().unwrap();
    assert_eq!(issues.iter().filter(|issue| issue["status"] == "closed").count(), count);
    assert_eq!(issues.len(), count);
    let events = data(&home, &repo, &["history", "--limit", "1000000"]);
    let done: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["verb"] == "task.done")
        .map(|event| event["entity"].as_str().unwrap())
        .collect();
    assert_eq!((done.len(), done.iter().collect::<BTreeSet<_>>().len()), (count, count), "each is done once");
    for task in done {
        let commits = home.run(&repo, "git", &["log", "--all", "--oneline", "--", &format!("did-{task}")]);
        assert_eq!(commits.lines().count(), 1, "the effect of {task} is there once: {commits}");
    }
    assert!(data(&home, &repo, &["status"])["working"].as_array().unwrap().is_empty());
    is_whole(&home, &repo);
}

/// Only the workspace's own copy of a ledger in the tree hears that it is done, until that is merged.
#[test]
fn an_issue_that_was_finished_inside_a_workspace_is_not_opened_again_elsewhere() {
    let home = Home::new();
    let repo = home.git("api");
    home.toft(&repo, &["init", "--tree"]).ok();
    let issue = home.toft(&repo, &["add", "Fix it", "-q"]).ok().trim().to_owned();
    home.run(&repo, "git", &["add", "-A"]);
    home.run(&repo, "git", &["commit", "-qm", "the plan"]);
    let claim = data(&home, &repo, &["--as", "w", "claim", "--ws"]);
    let workspace = PathBuf::from(text(&claim["workspace"]["path"]));
    fs::write(workspace.join("fix"), "x").unwrap();
    home.run(&workspace, "git", &["add", "fix"]);
    home.run(&workspace, "git", &["commit", "-qm", "fixed"]);
    home.toft(&workspace, &["--as", "w", "finish", "--evidence", "HEAD"]).ok();
    let status = |dir: &Path| text(&data(&home, dir, &["show", &issue])["status"]);
    assert_eq!((status(&repo), status(&workspace)), ("closed".to_owned(), "closed".to_owned()));
    for _ in 0..2 {
        home.toft(&repo, &["--as", "v", "claim"]).fails(6);
    }
    let doctor = home.toft(&repo, &["doctor"]).ok();
    assert!(!doctor.contains("the store that had its claim no longer exists"), "{doctor}");
    assert_eq!(home.run(&workspace, "git", &["status", "--porcelain"]), "", "the workspace's own copy is not written");
    home.run(&repo, "git", &["commit", "-qam", "its claim and its end"]);
    let branch = home.run(&workspace, "git", &["branch", "--show-current"]);
    home.run(&repo, "git", &["merge", "-q", "--no-edit", branch.trim()]);
    assert_eq!(status(&repo), "closed", "merged, it stays so");
    home.toft(&repo, &["--as", "v", "claim"]).fails(6);
}
