//! One command, one outcome: what says no changed nothing, what changed something says so, and nothing fails after its
//! commit. And time: no clock that steps strands anything.

use toft_stories::prelude::*;

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
    let (home, repo) = Home::with_repository("api");
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
    let (home, repo) = Home::with_repository("api");
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
    let (home, repo) = Home::with_repository("api");
    for keep in ["always", "unlanded", "failed"] {
        home.configure(format!("[workspaces]\nkeep = \"{keep}\"\n"));
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
    let (home, repo) = Home::with_repository("api");
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
fn commands_on_ledgers_and_workspaces_honour_operation_ids() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, "x");
    let made = home.toft(&repo, &["flow", "new", "Ship", "--task", "a", "--task", "b", "--json"]).data();
    let [first, second] = [0, 1].map(|n| made["tasks"][n]["id"].as_str().unwrap().to_owned());
    for (op, args) in [
        ("k1", &["edit", &id, "--comment", "hi"][..]),
        ("k2", &["ws", "create", "--name", "s1"]),
        ("k3", &["delete", &id, "-m", "no"]),
        ("k4", &["reopen", &id]),
        ("k5", &["close", &first, &second, "-m", "not needed"]),
    ] {
        let run = || home.toft(&repo, &[&["--op", op], args].concat()).ok();
        assert_eq!(run(), run(), "{args:?}");
        assert!(home.toft(&repo, &["--op", op, "add", "another"]).fails(5).contains("another request"), "{args:?}");
    }
    let shown = home.toft(&repo, &["show", &id, "--json"]).data();
    assert_eq!(shown["comments"].as_array().unwrap().len(), 1);
    assert_eq!(shown["status"], "open");
    let events = home.toft(&repo, &["history", "--json"]).data();
    assert_eq!(events.as_array().unwrap().iter().filter(|event| event["verb"] == "task.skipped").count(), 2);
    home.toft(&repo, &["close", &first, &id]).refuses(2, "commands of their own");
}

#[test]
fn what_standard_input_says_is_part_of_an_operation() {
    let (home, repo) = Home::with_repository("api");
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
fn output_that_cannot_be_written_is_an_error() {
    let (home, repo) = Home::with_repository("api");
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
    let (home, repo) = Home::with_repository("api");
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
    let orphans = home.toft(&repo, &["status", "--json"]).data()["orphans"].clone();
    assert_eq!((&orphans[0]["id"], &orphans[0]["orphan"]["kind"]), (&id.as_str().into(), &"store_gone".into()));
    assert!(home.toft(&repo, &["status"]).ok().contains("Fix it"));
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

#[test]
fn after_a_reboot_with_a_wrong_clock_a_lease_runs_out_in_its_time() {
    let (home, repo) = Home::with_repository("api");
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
    // The lease runs out while it is watched.
    thread::sleep(Duration::from_millis(1_300));
    assert_eq!(rebooted("-365d", "v"), Some(0));
}

#[test]
fn a_copy_of_a_repository_takes_nothing_from_the_original() {
    let (home, repo) = Home::with_repository("api");
    add(&home, &repo, "Job");
    home.toft(&repo, &["claim", "--ws", "--ttl", "1s"]).ok();
    let path = home.toft(&repo, &["ws", "path", "@"]).ok().trim().to_owned();
    fs::write(Path::new(&path).join("precious.txt"), "precious").unwrap();
    // The lease runs out.
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
fn a_finished_issue_is_not_claimed_again_by_a_clone_whose_ledger_is_behind() {
    let mut home = Home::new();
    home.use_store("global");
    let (_, clones) = cloned(&home, &["n1", "n2"]);
    let (one, two) = (&clones[0], &clones[1]);
    let id = add(&home, one, "both");
    home.toft(one, &["sync"]).ok();
    home.toft(two, &["sync"]).ok();
    home.toft(two, &["--as", "z2", "claim", &id]).ok();
    home.toft(two, &["--as", "z2", "finish", "--no-change", "done"]).ok();
    home.toft(one, &["--as", "z1", "claim", &id]).refuses(5, "toft sync");
    assert_ne!(home.toft(one, &["--as", "z1", "claim"]).code, 0);
}
