//! One command, one outcome: what says no changed nothing, what changed something says so, and nothing fails after its
//! commit. And time: no clock that steps strands anything.

use std::{fs, path::Path, process::Stdio, thread, time::Duration};

use toft_stories::{Home, toft_bin};

fn add(home: &Home, repo: &Path, title: &str) -> String {
    home.toft(repo, &["add", title, "-q"]).ok().trim().to_owned()
}

/// A ledger that nobody can append to, until dropped.
struct Immutable<'h>(&'h Home, std::path::PathBuf);

impl<'h> Immutable<'h> {
    fn ledger(home: &'h Home, repo: &Path) -> Self {
        let file = repo.join(".git/toft/ledger/issues.jsonl");
        home.run(repo, "chattr", &["+i", file.to_str().unwrap()]);
        Self(home, file)
    }
}

impl Drop for Immutable<'_> {
    fn drop(&mut self) {
        self.0.run(self.0.path(), "chattr", &["-i", self.1.to_str().unwrap()]);
    }
}

#[test]
fn nothing_is_claimed_whose_ledger_cannot_be_written() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, "one");
    let locked = Immutable::ledger(&home, &repo);
    for args in [&["claim"][..], &["claim", &id]] {
        assert!(home.toft(&repo, args).fails(4).contains("could not write"), "{args:?}");
    }
    assert!(home.toft(&repo, &["status"]).ok().contains("No work in progress"));
    drop(locked);
    home.toft(&repo, &["claim"]).ok();
}

#[test]
fn what_was_finished_stands_though_its_ledger_cannot_be_told_and_is_told_later() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, "one");
    home.toft(&repo, &["claim"]).ok();
    let locked = Immutable::ledger(&home, &repo);
    let said = home.toft(&repo, &["finish", "--no-change", "x", "--json"]);
    let notes = serde_json::from_str::<serde_json::Value>(&said.out).unwrap()["notes"].clone();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(notes[0].as_str().unwrap().contains(&id), "{notes}");
    assert!(
        home.toft(&repo, &["doctor"]).out.contains("1 issues have changes that are not in their ledgers"),
        "the doctor knows"
    );
    drop(locked);
    home.toft(&repo, &["claim"]).fails(6);
    assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["status"], "closed");
}

#[test]
fn a_finish_stands_whatever_its_workspace_looks_like() {
    let home = Home::new();
    let repo = home.repo("api");
    for keep in ["always", "unlanded", "failed"] {
        let config = home.path().join("home/.config/toft");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), format!("[workspaces]\nkeep = \"{keep}\"\n")).unwrap();
        add(&home, &repo, keep);
        let claim = home.toft(&repo, &["claim", "--ws", "--json"]).data();
        fs::remove_file(Path::new(claim["workspace"]["path"].as_str().unwrap()).join(".git")).unwrap();
        home.toft(&repo, &["finish", "--no-change", "x"]).ok();
        let task = home.toft(&repo, &["show", claim["task"]["id"].as_str().unwrap(), "--json"]).data();
        assert_eq!(task["task"]["status"], "done", "{keep}");
    }
}

#[test]
fn each_of_several_claims_has_its_own_outcome() {
    let home = Home::new();
    let repo = home.repo("api");
    let ids: Vec<_> = (0..3).map(|n| add(&home, &repo, &format!("issue {n}"))).collect();
    // A directory is in the way of the second workspace.
    let root = home.path().join("home/.local/share/toft/workspaces");
    let first = home.toft(&repo, &["ws", "create", "--name", "probe", "--json"]).data();
    let place = Path::new(first["path"].as_str().unwrap()).parent().unwrap().to_owned();
    assert!(place.starts_with(&root));
    fs::create_dir(place.join(&ids[1])).unwrap();
    fs::write(place.join(&ids[1]).join("mine"), "in the way").unwrap();
    let said = home.toft(&repo, &["claim", "--count", "3", "--ws", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(answer["data"].as_array().unwrap().len(), 2);
    assert!(answer["notes"][0].as_str().unwrap().contains("was released"), "{answer}");
    let open = home.toft(&repo, &["list", "--status", "open", "-q"]).ok();
    assert_eq!(open.trim(), ids[1], "only the one without a workspace is free");
}

#[test]
fn another_request_under_an_operation_id_is_refused() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    let claim = || home.toft(&repo, &["claim", "-q"]).ok().trim().to_owned();
    let (first, second) = (claim(), claim());
    let finish = |task: &str, reason: &str| home.toft(&repo, &["--op", "k1", "finish", task, "--no-change", reason]);
    finish(&first, "a").ok();
    finish(&first, "a").ok();
    for said in [finish(&second, "b"), finish(&first, "b")] {
        assert!(said.fails(5).contains("another request"));
    }
    assert_eq!(home.toft(&repo, &["show", &second, "--json"]).data()["task"]["status"], "leased");
}

#[test]
fn commands_on_ledgers_and_workspaces_honour_operation_ids() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, "x");
    for (op, args) in [
        ("k1", &["edit", &id, "--comment", "hi"][..]),
        ("k2", &["ws", "create", "--name", "s1"]),
        ("k3", &["delete", &id, "-m", "no"]),
        ("k4", &["restore", &id]),
    ] {
        let run = || home.toft(&repo, &[&["--op", op], args].concat()).ok();
        assert_eq!(run(), run(), "{args:?}");
        assert!(home.toft(&repo, &["--op", op, "add", "another"]).fails(5).contains("another request"), "{args:?}");
    }
    let shown = home.toft(&repo, &["show", &id, "--json"]).data();
    assert_eq!(shown["comments"].as_array().unwrap().len(), 1);
    assert_eq!(shown["status"], "open");
}

#[test]
fn what_standard_input_says_is_part_of_an_operation() {
    let home = Home::new();
    let repo = home.repo("api");
    let give = |op: &str, args: &[&str], said: &str| {
        let file = home.path().join("input");
        fs::write(&file, said).unwrap();
        let mut command = home.command(&repo, toft_bin(), &[&["--op", op], args].concat());
        command.stdin(fs::File::open(file).unwrap()).output().unwrap()
    };
    for (op, args) in [("k1", &["add", "-"][..]), ("k2", &["import", "markdown", "-"])] {
        let first = give(op, args, &format!("- [ ] {op} one\n- [ ] {op} two\n"));
        assert!(first.status.success(), "{first:?}");
        let again = give(op, args, &format!("- [ ] {op} one\n- [ ] {op} two\n"));
        assert_eq!((again.status.code(), &again.stdout), (Some(0), &first.stdout), "the same answer");
        let other = give(op, args, &format!("- [ ] {op} three\n"));
        assert_eq!(other.status.code(), Some(5), "{other:?}");
    }
    let titles = home.toft(&repo, &["list"]).ok();
    assert_eq!(titles.lines().count(), 4, "{titles}");
    assert!(!titles.contains("three"), "{titles}");
}

#[test]
fn undo_leaves_what_others_hold_and_finished_and_redo_brings_back() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["--as", "planner", "flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    home.toft(&repo, &["--as", "worker", "claim"]).ok();
    home.toft(&repo, &["--as", "w2", "claim"]).ok();
    home.toft(&repo, &["--as", "w2", "finish", "--no-change", "fine already"]).ok();
    assert!(home.toft(&repo, &["--as", "planner", "undo"]).fails(5).contains("worked on"));
    home.toft(&repo, &["--as", "worker", "save", "-m", "more"]).ok();

    let id = add(&home, &repo, "mine");
    home.toft(&repo, &["edit", &id, "--title", "changed"]).ok();
    home.toft(&repo, &["undo", "2"]).ok();
    home.toft(&repo, &["undo", "--redo"]).ok();
    assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["title"], "mine");
    home.toft(&repo, &["undo", "--redo"]).ok();
    assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["title"], "changed");
    home.toft(&repo, &["undo", "--redo"]).fails(6);
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let home = Home::new();
    let repo = home.repo("api");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = home.command(&repo, toft_bin(), &["where"]).stdout(Stdio::from(full)).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_disk_says_truly_whether_the_issue_is_there() {
    let home = Home::new();
    let small = home.path().join("small");
    fs::create_dir(&small).unwrap();
    home.run(home.path(), "mount", &["-t", "tmpfs", "-o", "size=10m", "tmpfs", small.to_str().unwrap()]);
    let repo = small.join("repo");
    fs::create_dir(&repo).unwrap();
    home.run(&repo, "git", &["init", "-q", "-b", "main"]);
    home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", "first"]);
    home.toft(&repo, &["init"]).ok();
    add(&home, &repo, "first");
    // Every byte is taken; what is written from here on can fail anywhere.
    let filled = home.command(&small, "dd", &["if=/dev/zero", "of=fill", "bs=64k"]).output().unwrap();
    assert!(!filled.status.success(), "the disk is full");
    let said = home.toft(&repo, &["add", "charge the customers"]);
    fs::remove_file(small.join("fill")).unwrap();
    let there = home.toft(&repo, &["list"]).ok().contains("charge the customers");
    home.run(home.path(), "umount", &["-l", small.to_str().unwrap()]);
    assert_eq!(said.code == 0, there, "{said:?}");
    assert!(there || !said.err.contains("Added"), "{said:?}");
}

#[test]
fn an_issue_whose_claim_is_lost_with_its_store_is_open_again_and_one_claimed_elsewhere_is_not() {
    let home = Home::new();
    if home.on_server() {
        return;
    }
    let repo = home.repo("api");
    let id = add(&home, &repo, "Fix it");
    home.toft(&repo, &["--as", "one", "claim", "--ttl", "1s"]).ok();
    for entry in fs::read_dir(repo.join(".git/toft")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("toft.db") {
            fs::remove_file(path).unwrap();
        }
    }
    home.toft(&repo, &["init"]).ok();
    assert!(home.toft(&repo, &["doctor"]).out.contains("the store that had its claim no longer exists"));
    home.toft(&repo, &["--as", "two", "claim"]).ok();
    let comments = home.toft(&repo, &["show", &id, "--json"]).data()["comments"].clone();
    assert!(comments[0]["text"].as_str().unwrap().contains("Open again"), "{comments}");

    // Another store of this clone has the claim: it cannot be told from here that nobody is on it.
    let other = home.path().join("other.db");
    home.toft(&repo, &["--as", "two", "finish", "--no-change", "x"]).ok();
    let id = add(&home, &repo, "Fix that");
    home.toft(&repo, &["--store", other.to_str().unwrap(), "init"]).ok();
    home.toft(&repo, &["--store", other.to_str().unwrap(), "--as", "three", "claim"]).ok();
    home.toft(&repo, &["--as", "four", "claim"]).fails(6);
    home.toft(&repo, &["--as", "four", "claim", &id]).fails(5);
}

fn faketime(home: &Home, repo: &Path, shift: &str, args: &[&str]) -> std::process::Output {
    let bin = toft_bin().display().to_string();
    let all = [&["--exclude-monotonic", "-f", shift, &bin], args].concat();
    home.command(repo, "faketime", &all).output().unwrap()
}

#[test]
fn a_clock_that_was_ahead_strands_no_retry_no_timer_and_no_lease() {
    let home = Home::new();
    if home.on_server() {
        return;
    }
    let repo = home.repo("api");
    let mut home = home;
    home.set("TOFT_RETRY_BACKOFF", "1s");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    home.toft(&repo, &["claim"]).ok();
    assert!(faketime(&home, &repo, "+365d", &["finish", "failed", "-m", "flaky"]).status.success());
    home.toft(&repo, &["claim"]).ok();
    assert!(faketime(&home, &repo, "+365d", &["finish", "waiting", "--for", "2s", "-m", "soon"]).status.success());
    for _ in 0..2 {
        home.toft(&repo, &["claim", "--wait=20s", "--ttl", "8s"]).ok();
    }
    // Leases that were looked at while the clock was ahead run out on time.
    assert_eq!(faketime(&home, &repo, "+365d", &["claim", "--as", "other"]).status.code(), Some(6));
    home.toft(&repo, &["claim", "--as", "other", "--wait=20s"]).ok();
}

#[test]
fn after_a_reboot_with_a_wrong_clock_a_lease_runs_out_in_its_time() {
    let home = Home::new();
    if home.on_server() {
        return;
    }
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    home.toft(&repo, &["claim", "--as", "w", "--ttl", "1s"]).ok();
    let boot = home.path().join("boot");
    fs::write(&boot, "99999999-2222-3333-4444-555555555555\n").unwrap();
    let rebooted = |shift: &str, name: &str| {
        let text = format!(
            "mount --bind {} /proc/sys/kernel/random/boot_id; exec faketime --exclude-monotonic -f {shift} {} --as {name} claim",
            boot.display(),
            toft_bin().display()
        );
        home.command(&repo, "unshare", &["-m", "bash", "-c", &text]).output().unwrap().status.code()
    };
    assert_eq!(rebooted("-365d", "v"), Some(6), "nobody has watched it yet");
    thread::sleep(Duration::from_millis(1_300));
    assert_eq!(rebooted("-365d", "v"), Some(0));
}

#[test]
fn one_broken_workspace_is_one_bad_row() {
    let home = Home::new();
    let repo = home.repo("api");
    for n in 0..3 {
        add(&home, &repo, &format!("Job {n}"));
        home.toft(&repo, &["claim", "--ws", "--as", &format!("w{n}")]).ok();
    }
    let path = home.toft(&repo, &["ws", "path", "@", "--as", "w1"]).ok();
    fs::remove_file(Path::new(path.trim()).join(".git")).unwrap();
    let status = home.toft(&repo, &["status"]).ok();
    assert!(["w0", "w1", "w2"].iter().all(|agent| status.contains(agent)), "{status}");
    let list = home.toft(&repo, &["ws", "list"]).ok();
    assert_eq!(list.lines().filter(|line| line.starts_with("tf-")).count(), 3, "{list}");
    home.toft(&repo, &["ws", "gc"]).ok();
}

#[test]
fn a_repository_that_was_moved_goes_on_and_a_workspace_that_was_moved_says_how() {
    let home = Home::new();
    if home.on_server() {
        return;
    }
    let repo = home.repo("api");
    add(&home, &repo, "Job");
    home.toft(&repo, &["claim", "--ws"]).ok();
    let path = home.toft(&repo, &["ws", "path", "@"]).ok().trim().to_owned();
    fs::write(Path::new(&path).join("dirty.txt"), "dirty").unwrap();
    let moved = home.path().join("moved");
    fs::rename(&repo, &moved).unwrap();
    assert!(home.toft(&moved, &["ws", "list"]).ok().contains("1 untracked"));
    home.toft(Path::new(&path), &["save", "-m", "from inside"]).ok();
    home.toft(&moved, &["finish", "release", "-m", "back"]).ok();
    home.toft(&moved, &["claim", "--ws"]).ok();

    let elsewhere = home.path().join("elsewhere");
    home.run(&moved, "git", &["worktree", "move", &path, elsewhere.to_str().unwrap()]);
    let listed = home.toft(&moved, &["ws", "list", "--json"]).ok();
    assert!(listed.contains(&format!("toft ws create --adopt {}", elsewhere.display())), "{listed}");
    assert!(elsewhere.join("dirty.txt").exists());
}

#[test]
fn a_copy_of_a_repository_takes_nothing_from_the_original() {
    let home = Home::new();
    if home.on_server() {
        return;
    }
    let repo = home.repo("api");
    add(&home, &repo, "Job");
    home.toft(&repo, &["claim", "--ws", "--ttl", "1s"]).ok();
    let path = home.toft(&repo, &["ws", "path", "@"]).ok().trim().to_owned();
    fs::write(Path::new(&path).join("precious.txt"), "precious").unwrap();
    thread::sleep(Duration::from_millis(1_200));
    let copy = home.path().join("copy");
    home.run(home.path(), "cp", &["-a", repo.to_str().unwrap(), copy.to_str().unwrap()]);
    for args in [&["ws", "gc", "--older-than", "0s"][..], &["ws", "rm", &path], &["ws", "rm", &path, "--rescue"]] {
        home.toft(&copy, args);
    }
    assert!(Path::new(&path).join("precious.txt").exists());
    assert!(home.toft(&repo, &["ws", "list"]).ok().contains("1 untracked"));
}

#[test]
fn what_another_holds_or_finished_is_neither_undone_nor_redone_and_a_refused_edit_gives_nothing_up() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, "m6");
    home.toft(&repo, &["delete", &id, "-m", "no"]).ok();
    home.toft(&repo, &["undo"]).ok();
    home.toft(&repo, &["--as", "b", "claim", &id]).ok();
    assert!(home.toft(&repo, &["undo", "--redo"]).fails(5).contains("works on it"));
    home.toft(&repo, &["--as", "b", "finish", "release", "-m", "later"]).ok();

    // An edit that is refused gives up no workflow.
    home.toft(&repo, &["close", &id, "tf-nosuch", "-m", "x"]).fails(3);
    let flows = home.toft(&repo, &["flow", "list", "--json"]).data();
    assert_eq!(flows.as_array().unwrap().len(), 1, "{flows}");

    let other = add(&home, &repo, "t5");
    home.toft(&repo, &["edit", &other, "--title", "important"]).ok();
    home.toft(&repo, &["--as", "b", "claim", &other]).ok();
    assert!(home.toft(&repo, &["undo"]).fails(5).contains("works on it"));
    home.toft(&repo, &["--as", "b", "finish", "--no-change", "x"]).ok();
    assert!(home.toft(&repo, &["undo"]).fails(5).contains("finished since"));
    assert_eq!(home.toft(&repo, &["show", &other, "--json"]).data()["title"], "important");
}

#[test]
fn a_finished_issue_is_not_claimed_again_by_a_clone_whose_ledger_is_behind() {
    let mut home = Home::new();
    if !home.on_server() {
        home.use_store("global");
    }
    let first = home.git("n0");
    let up = home.path().join("n.git");
    home.run(&first, "git", &["clone", "-q", "--bare", ".", up.to_str().unwrap()]);
    for name in ["n1", "n2"] {
        home.run(home.path(), "git", &["clone", "-q", up.to_str().unwrap(), name]);
        home.toft(&home.path().join(name), &["init"]).ok();
    }
    let (one, two) = (home.path().join("n1"), home.path().join("n2"));
    let id = add(&home, &one, "both");
    home.toft(&one, &["sync"]).ok();
    home.toft(&two, &["sync"]).ok();
    home.toft(&two, &["--as", "z2", "claim", &id]).ok();
    home.toft(&two, &["--as", "z2", "finish", "--no-change", "done"]).ok();
    assert!(home.toft(&one, &["--as", "z1", "claim", &id]).fails(5).contains("toft sync"));
    assert_ne!(home.toft(&one, &["--as", "z1", "claim"]).code, 0);
}
