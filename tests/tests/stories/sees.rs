//! Everyone sees everyone: one store for a repository, whatever way it is looked at.

use toft_stories::prelude::*;

fn store(home: &Home, dir: &Path) -> (String, String) {
    let data = home.toft(dir, &["where", "--json"]).data();
    (data["store"].as_str().unwrap().to_owned(), data["worktree"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn every_view_of_a_git_repository_names_the_same_store() {
    let (home, repo) = Home::with_repository("api");
    let expected = repo.join(".git/toft/toft.db").display().to_string();
    home.run(&repo, "git", &["worktree", "add", "-q", "../side"]);
    let side = home.path().join("side");
    fs::create_dir_all(side.join("deep/er")).unwrap();
    std::os::unix::fs::symlink(&side, home.path().join("link")).unwrap();
    assert_eq!(store(&home, &repo), (expected.clone(), "main".into()));
    assert_eq!(store(&home, &side), (expected.clone(), "side".into()));
    assert_eq!(store(&home, &side.join("deep/er")), (expected.clone(), "side".into()));
    assert_eq!(store(&home, &home.path().join("link/deep")), (expected.clone(), "side".into()));
    assert_eq!(store(&home, &repo.join(".git")), (expected, "main".into()));
}

#[test]
fn worktrees_of_a_bare_repository_share_its_store() {
    let (home, source) = Home::with(|home| home.git("source"));
    home.run(home.path(), "git", &["clone", "-q", "--bare", "source", "bare.git"]);
    let bare = home.path().join("bare.git");
    home.run(&bare, "git", &["worktree", "add", "-q", "../one", "main"]);
    let one = home.path().join("one");
    home.toft(&one, &["init"]).ok();
    let expected = bare.join("toft/toft.db").display().to_string();
    assert_eq!(store(&home, &one), (expected.clone(), "one".into()));
    assert_eq!(store(&home, &bare), (expected, "bare".into()));
    home.toft(&source, &["ready"]).fails(3);
}

#[test]
fn a_mercurial_repository_and_its_share_have_one_store() {
    let home = Home::new();
    home.run(home.path(), "hg", &["init", "work"]);
    let work = home.path().join("work");
    home.run(home.path(), "hg", &["--config", "extensions.share=", "share", "-q", "work", "other"]);
    home.toft(&work, &["init"]).ok();
    let expected = work.join(".hg/toft/toft.db").display().to_string();
    assert_eq!(store(&home, &work), (expected.clone(), "main".into()));
    assert_eq!(store(&home, &home.path().join("other")), (expected, "other".into()));
}

#[test]
fn workspaces_of_a_jujutsu_repository_share_its_store() {
    for (flag, place) in [("--colocate", ".git/toft/toft.db"), ("--no-colocate", ".jj/repo/toft/toft.db")] {
        let home = Home::new();
        home.run(home.path(), "jj", &["git", "init", flag, "one"]);
        let (one, two) = (home.path().join("one"), home.path().join("two"));
        home.toft(&one, &["init"]).ok();
        home.run(&one, "jj", &["workspace", "add", "../two"]);
        let expected = one.join(place).display().to_string();
        assert_eq!(store(&home, &one), (expected.clone(), "main".into()));
        assert_eq!(store(&home, &two), (expected, "two".into()));
        home.toft(&one, &["add", "seen from everywhere"]).ok();
        assert!(home.toft(&two, &["ready"]).ok().contains("seen from everywhere"));
    }
}

#[test]
fn a_plain_directory_is_a_repository_only_when_it_was_asked_for() {
    let home = Home::new();
    let dir = home.path().join("plain");
    fs::create_dir_all(dir.join("sub")).unwrap();
    assert!(home.toft(&dir, &["init"]).fails(3).contains("--store global"));
    assert!(home.toft(&dir, &["flow", "new", "x"]).fails(3).contains("--store global"));
    home.toft(&dir, &["init", "--no-vcs"]).ok();
    let expected = dir.join(".toft/toft.db").display().to_string();
    assert_eq!(store(&home, &dir.join("sub")), (expected, "main".into()));
}

#[test]
fn flag_beats_environment_beats_configuration_beats_repository() {
    let (home, repo) = Home::with_repository("api");
    let because = |env: &[(&str, &str)], args: &[&str]| {
        let data = home.toft_with(&repo, env, args).data();
        (data["store"].as_str().unwrap().to_owned(), data["because"].as_str().unwrap().to_owned())
    };
    let config = repo.join(".git/toft/config.toml");
    fs::write(&config, "store = \"worktree\"\n").unwrap();
    let (store, why) = because(&[], &["where", "--json"]);
    assert!(store.ends_with(".git/toft/worktrees/main/toft.db") && why.contains("config.toml"), "{store} {why}");
    let (store, why) = because(&[("TOFT_STORE", "~/x.db")], &["where", "--json"]);
    assert!(store.ends_with("home/x.db") && why.contains("TOFT_STORE"), "{store} {why}");
    let (store, why) = because(&[("TOFT_STORE", "~/x.db")], &["where", "--json", "--store", "global"]);
    assert!(store.ends_with("home/.local/state/toft/toft.db") && why.contains("--store"), "{store} {why}");
    let (store, _) = because(&[("TOFT_STORE", "")], &["where", "--json", "--store", "repo"]);
    assert!(store.ends_with(".git/toft/toft.db"), "{store}");
    home.toft(&repo, &["ready", "--store", "mysql://db"]).fails(2);
    home.toft(&repo, &["ready", "--store", "https://db"]).fails(4);
    let start = std::time::Instant::now();
    home.toft(&repo, &["ready", "--store", "postgres://nowhere.invalid/toft"]).fails(2);
    assert!(start.elapsed().as_secs() < 10, "a server that cannot exist is not waited for");
}

#[test]
fn a_missing_store_is_never_made_by_the_way() {
    let (home, repo) = Home::with(|home| home.git("api"));
    for args in [&["ready"][..], &["claim"], &["flow", "new", "x"], &["status"], &["history"]] {
        assert!(home.toft(&repo, args).fails(3).contains("toft init"));
    }
    assert!(!repo.join(".git/toft").exists());
    home.toft(&repo, &["ready", "--store", "nowhere.db"]).fails(3);
    assert!(!repo.join("nowhere.db").exists());
}

#[test]
fn cleaning_and_removing_every_worktree_loses_nothing() {
    let (home, repo) = Home::with_repository("api");
    home.run(&repo, "git", &["worktree", "add", "-q", "../side"]);
    let side = home.path().join("side");
    home.toft(&side, &["flow", "new", "from the side"]).ok();
    home.toft(&side, &["claim"]).ok();
    home.toft(&side, &["save", "-m", "a note"]).ok();
    home.run(&side, "git", &["clean", "-xfdq"]);
    home.run(&repo, "git", &["clean", "-xfdq"]);
    home.run(&repo, "git", &["worktree", "remove", "--force", "../side"]);
    let status = home.toft(&repo, &["status", "--json"]).data();
    assert_eq!(status["working"][0]["worktree"], "side");
    assert_eq!(status["working"][0]["note"], "a note");
    assert!(home.toft(&repo, &["doctor"]).ok().contains("invariants"));
}

#[test]
fn an_emptied_worktree_is_an_error_and_never_its_parent() {
    let (home, repo) = Home::with_repository("api");
    home.run(&repo, "git", &["worktree", "add", "-q", "inner"]);
    let inner = repo.join("inner");
    home.toft(&inner, &["ready"]).ok();
    fs::remove_file(inner.join(".git")).unwrap();
    fs::create_dir(inner.join("src")).unwrap();
    for dir in [&inner, &inner.join("src")] {
        assert!(home.toft(dir, &["ready"]).fails(8).contains("inner"));
    }
    home.toft(&repo, &["ready"]).ok();
}

#[test]
fn reading_changes_no_file_anywhere() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "some", "--task", "a", "--task", "b"]).ok();
    home.toft(&repo, &["claim"]).ok();
    let id = home.toft(&repo, &["add", "one", "-q"]).ok().trim().to_owned();
    home.toft(&repo, &["list"]).ok();
    let before = durable(&home);
    for args in [
        &["list", "--search", "one"][..],
        &["show", &id, "--why"],
        &["list", "--graph=mermaid"],
        &["export", "jsonl"],
        &["export", "beads"],
        &["export", "csv"],
        &["ready"],
        &["ready", "--explain"],
        &["status"],
        &["list", "--all"],
        &["show"],
        &["history"],
        &["where"],
        &["flow", "list"],
        &["agent", "list"],
        &["flow", "template", "list"],
        &["doctor"],
    ] {
        home.toft(&repo, args).ok();
        assert_eq!(durable(&home), before, "{args:?}");
    }
}

/// Every file but SQLite's shared memory, which is rebuilt by whoever opens the store alone, and the tickets.
fn durable(home: &Home) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = snapshot(home.path());
    files.retain(|path, _| !path.ends_with("toft.db-shm") && !path.ends_with("toft.turns"));
    files
}

#[test]
fn a_store_on_a_file_system_without_sound_shared_memory_is_refused() {
    let home = Home::new();
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
        let dir = home.path().join(name);
        fs::create_dir(&dir).unwrap();
        dir
    });
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let mount = home
        .command(home.path(), "mount", &["-t", "overlay", "overlay", "-o", &options, merged.to_str().unwrap()])
        .output()
        .unwrap();
    if !mount.status.success() {
        eprintln!("skipped: this user cannot mount an overlay");
        return;
    }
    let said = home.toft(&merged, &["init", "--no-vcs"]);
    home.run(home.path(), "umount", &[merged.to_str().unwrap()]);
    assert!(said.fails(8).contains("overlayfs"));
}

#[test]
fn a_hard_linked_store_is_refused_and_a_symbolic_link_is_followed() {
    let (home, repo) = Home::with_repository("api");
    let store = repo.join(".git/toft/toft.db");
    std::os::unix::fs::symlink(&store, home.path().join("soft.db")).unwrap();
    let soft = home.path().join("soft.db");
    home.toft(&repo, &["flow", "new", "x", "--store", soft.to_str().unwrap()]).ok();
    assert_eq!(home.toft(&repo, &["ready", "--json"]).data()[0]["name"], "x");
    assert!(!home.path().join("soft.db-wal").exists());
    fs::hard_link(&store, home.path().join("hard.db")).unwrap();
    assert!(home.toft(&repo, &["ready"]).fails(8).contains("hard links"));
}
