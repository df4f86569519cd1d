//! Backups: the disk is lost, the backup comes back, and everything is there.

use toft_stories::prelude::*;

/// Work with a large detail, an issue and an answered question, on whatever store the home uses.
fn work(home: &Home, repo: &Path) -> String {
    home.toft(repo, &["flow", "new", "F", "--task", "A", "--task", "B"]).ok();
    home.toft(repo, &["add", "An issue of the plan"]).ok();
    let task = home.toft(repo, &["--as", "w", "claim", "-q"]).ok().trim().to_owned();
    let detail = format!("{{\"rows\":\"{}\"}}", "y".repeat(20_000));
    home.toft(repo, &["--as", "w", "save", "-m", "state of the migration", "--detail", &detail]).ok();
    home.toft(repo, &["agent", "send", "w", "mind the gap"]).ok();
    task
}

/// What can be seen of it.
fn seen(home: &Home, repo: &Path, task: &str) -> [String; 4] {
    let show = home.toft(repo, &["show", task, "--json"]).data();
    home.toft(repo, &["show", task, "--context"]).says("state of the migration");
    let log = home.toft(repo, &["history", "--json", "--limit", "1000"]).data();
    let flows = home.toft(repo, &["flow", "list", "--json"]).data();
    let checkpoints = show["checkpoints"].to_string();
    assert!(checkpoints.contains("migration"), "{checkpoints}");
    [show["task"]["name"].to_string(), checkpoints, log.to_string(), flows.to_string()]
}

fn new_clone(home: &Home, name: &str) -> PathBuf {
    home.run(home.path(), "git", &["clone", "-q", "api", name]);
    home.path().join(name)
}

#[test]
fn a_backup_survives_the_loss_of_the_disk_with_blobs_ledger_and_all() {
    let (home, repo) = Home::with_repository("api");
    let task = work(&home, &repo);
    let before = seen(&home, &repo, &task);
    let issues = home.toft(&repo, &["list", "--json"]).data();
    let kept = home.path().join("kept.backup");
    home.toft(&repo, &["backup", kept.to_str().unwrap()]).ok();
    // What happens later is not in it.
    home.toft(&repo, &["flow", "new", "later", "--task", "x"]).ok();
    let clone = new_clone(&home, "again");
    fs::remove_dir_all(repo.join(".git/toft")).unwrap();

    home.toft(&clone, &["ready"]).fails(3);
    home.toft(&clone, &["backup", "restore", kept.to_str().unwrap()]).ok();
    home.toft(&clone, &["doctor"]).ok();
    assert_eq!(seen(&home, &clone, &task), before);
    assert_eq!(home.toft(&clone, &["list", "--json"]).data(), issues);
    home.toft(&clone, &["--as", "v", "claim"]).ok();
    home.toft(&clone, &["flow", "new", "afterwards", "--task", "x"]).ok();
}

#[test]
fn a_restore_never_deletes_a_store_and_replaces_a_whole_one_only_when_told_to() {
    let (home, repo) = Home::with_repository("api");
    let task = work(&home, &repo);
    let backups = home.path().join("backups");
    fs::create_dir(&backups).unwrap();
    let made = home.toft(&repo, &["backup", backups.to_str().unwrap(), "--json"]).data();
    let kept = made["file"].as_str().unwrap().to_owned();
    assert_eq!(made["blobs"], 1);
    home.toft(&repo, &["flow", "new", "later", "--task", "x"]).ok();
    home.toft(&repo, &["backup", "restore", &kept]).refuses(5, "--replace");

    // While a process has the store open, it is not replaced below it.
    let store = repo.join(".git/toft/toft.db");
    let mut holder = home.command(&repo, "sqlite3", &[store.to_str().unwrap()]);
    let mut holder = holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = holder.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"begin; select count(*) from tasks;\n").unwrap();
    let mut answer = [0; 1];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut answer).unwrap();
    home.toft(&repo, &["backup", "restore", &kept, "--replace"]).fails(7);
    drop(input);
    holder.wait().unwrap();

    let done = home.toft(&repo, &["backup", "restore", &kept, "--replace", "--json"]).data();
    let aside = done["aside"].as_str().unwrap();
    assert!(!home.toft(&repo, &["flow", "list"]).ok().contains("later"));
    assert!(home.toft(&repo, &["flow", "list", "--store", aside]).ok().contains("later"), "the old one is whole");

    // A damaged store is in nobody's way.
    fs::write(&store, "").unwrap();
    home.toft(&repo, &["ready"]).fails(8);
    home.toft(&repo, &["backup", "restore", &kept]).ok();
    seen(&home, &repo, &task);
    home.toft(&repo, &["doctor"]).ok();

    // What is no backup changes nothing.
    for (content, code) in [(&b"hello"[..], 8), (b"", 8)] {
        let wrong = home.path().join("wrong");
        fs::write(&wrong, content).unwrap();
        home.toft(&repo, &["backup", "restore", wrong.to_str().unwrap(), "--replace"]).fails(code);
    }
    home.toft(&repo, &["backup", "restore", "/nowhere/at/all"]).fails(3);
    seen(&home, &repo, &task);
}

#[test]
fn a_space_on_a_server_is_backed_up_and_comes_back_on_another_server() {
    if !has_postgresql() {
        return;
    }
    let mut home = Home::new();
    let kept = home.path().join("kept.backup");
    let (task, before) = {
        let cluster = Cluster::start();
        let store = format!("{}?space=team", cluster.url());
        home.behind_a_server(Some(&store));
        let repo = home.repo("api");
        let task = work(&home, &repo);
        home.toft(&repo, &["--store", &store, "backup", kept.to_str().unwrap()]).ok();
        (task.clone(), seen(&home, &repo, &task))
    };
    let repo = home.path().join("api");
    let cluster = Cluster::start();
    let store = format!("{}?space=others", cluster.url());
    let looked_after = |args: &[&str]| home.toft(&repo, &[&["--store", &store], args].concat());
    looked_after(&["backup", "restore", kept.to_str().unwrap()]).ok();
    looked_after(&["doctor"]).ok();
    let mut served = Home::new();
    served.behind_a_server(Some(&store));
    assert_eq!(seen(&served, &repo, &task), before);
    served.toft(&repo, &["--as", "v", "claim"]).ok();
    looked_after(&["backup", "restore", kept.to_str().unwrap()]).fails(5);
    let done = looked_after(&["backup", "restore", kept.to_str().unwrap(), "--replace", "--json"]).data();
    let aside = done["aside"].as_str().unwrap().strip_prefix("space ").unwrap();
    let mut old = Home::new();
    old.behind_a_server(Some(&format!("{}?space={aside}", cluster.url())));
    assert!(old.toft(&repo, &["history"]).ok().contains(" v "), "what was there is kept");
    let mut restored = Home::new();
    restored.behind_a_server(Some(&store));
    assert_eq!(seen(&restored, &repo, &task), before);
}
