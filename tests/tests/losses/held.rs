//! Attacks that the core withstood, told so that it goes on withstanding them: stopped writers, full disks, crowds, races for
//! limits and cycles, killed runners.
#![cfg(target_os = "linux")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use toft_stories::agents::none_left;
use toft_stories::prelude::*;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Starts one command for each agent at the same time; gives how many succeeded.
fn at_once(home: &Home, repo: &Path, agents: usize, args: &[&str]) -> usize {
    let start = |n: usize| {
        let name = format!("agent{n}");
        home.start(repo, &[&["--as", &name], args].concat())
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
    let (home, repo) = Home::with_repository("api");
    let (_, tasks) = start_flow(&home, &repo, &["A", "B", "C"], &[]);
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
    if !may_mount() {
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

// ---- Races on a server

fn on_server() -> Option<(Cluster, Home, PathBuf)> {
    let cluster = postgresql()?;
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
        let one = |needs: &[&str]| start_flow(&home, &repo, &["t"], needs).1.remove(0);
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
        let (workflow, _) = start_flow(&home, &repo, &names, &["--max-parallel", "3"]);
        assert_eq!(at_once(&home, &repo, 20, &["claim", &workflow]), 3);
        home.toft(&repo, &["flow", "abandon", &workflow, "-m", "x"]).ok();
        let issue = home.toft(&repo, &["add", "only one", "-q"]).ok();
        assert_eq!(at_once(&home, &repo, 20, &["claim", issue.trim()]), 1);
    }
    is_whole(&home, &repo);
}

// ---- Runners and ledgers

/// Only the workspace's own copy of a ledger in the tree hears that it is done, until that is merged.
#[test]
fn an_issue_that_was_finished_inside_a_workspace_is_not_opened_again_elsewhere() {
    let (home, repo) = Home::with(|home| home.git("api"));
    home.toft(&repo, &["init", "--tree"]).ok();
    let issue = home.toft(&repo, &["add", "Fix it", "-q"]).ok().trim().to_owned();
    commit_all(&home, &repo, "the plan");
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
