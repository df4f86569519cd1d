//! The store's file: damage is never taken for a new store, and nothing else is ever taken for damage.

use toft_stories::prelude::*;

/// A repository with one workflow, and its store, whose log is merged into the file.
fn filled(home: &Home, name: &str) -> (PathBuf, PathBuf) {
    let repo = home.repo(name);
    let tasks: Vec<String> = (0..200).map(|n| format!("--task=t{n}")).collect();
    let args: Vec<&str> = ["flow", "new", "F"].into_iter().chain(tasks.iter().map(String::as_str)).collect();
    home.toft(&repo, &args).ok();
    home.toft(&repo, &["--as", "w", "claim"]).ok();
    let store = repo.join(".git/toft/toft.db");
    home.run(&repo, "sqlite3", &[store.to_str().unwrap(), "pragma wal_checkpoint(truncate)"]);
    (repo, store)
}

/// What every command must say about a damaged store, without touching it.
fn is_damaged(home: &Home, repo: &Path, store: &Path) {
    let before = fs::read(store).unwrap();
    for args in [
        &["ready"][..],
        &["status"],
        &["history"],
        &["doctor"],
        &["init"],
        &["--as", "z", "claim"],
        &["--as", "w", "save", "-m", "x"],
        &["flow", "new", "G", "--task", "t"],
    ] {
        let said = home.toft(repo, args).fails(8);
        assert!(said.starts_with("error[damaged]"), "{args:?}: {said}");
        assert!(said.contains("toft backup restore"), "{args:?}: {said}");
    }
    assert!(fs::read(store).unwrap() == before, "nothing was written");
}

#[test]
fn a_store_that_is_empty_is_damaged_and_never_new() {
    let home = Home::new();
    let (repo, store) = filled(&home, "api");
    fs::write(&store, "").unwrap();
    is_damaged(&home, &repo, &store);
    // A database without a table is as empty as a file without a byte.
    fs::remove_file(&store).unwrap();
    home.run(&repo, "sqlite3", &[store.to_str().unwrap(), "pragma journal_mode=wal; vacuum"]);
    is_damaged(&home, &repo, &store);
}

#[test]
fn a_store_that_is_truncated_or_overwritten_is_damaged() {
    let home = Home::new();
    let (repo, store) = filled(&home, "api");
    let whole = fs::read(&store).unwrap();
    for content in [&whole[..whole.len() / 3], &whole[..60], b"hello\n"] {
        fs::write(&store, content).unwrap();
        is_damaged(&home, &repo, &store);
    }
    // Garbage in single pages: whoever reads one of them is told, and the doctor finds all.
    for page in [2, 20] {
        let mut broken = whole.clone();
        broken[page * 4096..][..4096].fill(0xa5);
        fs::write(&store, broken).unwrap();
        let said = home.toft(&repo, &["doctor"]);
        assert_eq!(said.code, 8, "{said:?}");
        for args in [&["ready"][..], &["--as", "z", "claim"], &["history"]] {
            let said = home.toft(&repo, args);
            assert!(said.code == 0 || said.code == 8 && said.err.starts_with("error[damaged]"), "{said:?}");
        }
    }
}

#[test]
fn an_init_that_is_killed_anywhere_is_repeated_and_leaves_a_whole_store() {
    let calls = ["openat", "pwrite64", "write", "fsync", "fdatasync", "rename", "unlink", "ftruncate"];
    let mut kills = 0;
    for call in calls {
        for when in (1..).step_by(sized(4, 1)) {
            let home = Home::new();
            let repo = home.git("api");
            let inject = format!("inject={call}:signal=KILL:when={when}");
            let bin = toft_stories::toft_bin();
            let args = ["-f", "-o", "/dev/null", "-e", &inject, bin.to_str().unwrap(), "init"];
            let done = home.command(&repo, "strace", &args).output().unwrap();
            home.toft(&repo, &["init"]).ok();
            home.toft(&repo, &["doctor"]).ok();
            home.toft(&repo, &["flow", "new", "F", "--task", "t"]).ok();
            if done.status.success() {
                break;
            }
            kills += 1;
            assert!(when < 400, "{call} never ends");
        }
    }
    assert!(kills > 10, "{kills}");
}

#[test]
fn a_refused_command_leaves_nothing_beside_a_foreign_database() {
    let (home, repo) = Home::with_repository("api");
    let theirs = home.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    for (name, sql) in [("plain.db", "create table t (x)"), ("wal.db", "pragma journal_mode=wal; create table t (x)")] {
        let file = theirs.join(name);
        home.run(&theirs, "sqlite3", &[name, sql]);
        let before = snapshot(&theirs);
        for args in [&["ready"][..], &["init"], &["add", "x"]] {
            home.toft(&repo, &[&["--store", file.to_str().unwrap()], args].concat()).refuses(8, "another program");
        }
        assert_eq!(snapshot(&theirs), before);
    }
}

/// Files and directories that others could read or enter.
fn open_to_others(dir: &Path, skip: &dyn Fn(&Path) -> bool, found: &mut Vec<String>) {
    use std::os::unix::fs::MetadataExt as _;
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if skip(&path) || meta.is_symlink() {
            continue;
        }
        if meta.mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", meta.mode() & 0o777, path.display()));
        }
        if meta.is_dir() {
            open_to_others(&path, skip, found);
        }
    }
}

#[test]
fn everything_toft_writes_outside_the_users_tree_is_private_whatever_the_umask() {
    let (home, repo) = Home::with(|home| home.git("api"));
    let bin = toft_stories::toft_bin();
    let toft = |args: &[&str]| {
        let mut all = vec!["-c", "umask 000; exec \"$@\"", "sh", bin.to_str().unwrap()];
        all.extend(args);
        home.run(&repo, "sh", &all)
    };
    toft(&["init"]);
    toft(&["add", "An issue"]);
    toft(&["add", "Another"]);
    toft(&["flow", "new", "F", "--task", "A"]);
    toft(&["--as", "w", "claim", "--ws"]);
    toft(&["--as", "w", "save", "-m", "x", "--detail", &format!("\"{}\"", "y".repeat(20_000))]);
    toft(&["--as", "w", "finish", "--no-change", "x"]);
    toft(&["run", "--once", "--", "sh", "-c", "date > f; git add f; git commit -qm x"]);
    toft(&["gc", "--ledgers"]);
    toft(&["list", "--all"]);
    toft(&["init", "--contributor", "--no-input"]);
    toft(&["add", "A private plan"]);
    toft(&["sync"]);
    toft(&["gc", "--data"]);
    toft(&["backup", home.path().join("kept.backup").to_str().unwrap()]);
    let users = home.path().join("home");
    let mut found = Vec::new();
    // What git writes in a repository of toft's own, and what is checked out, is as git makes it; nobody else gets there.
    let workspaces = users.join(".local/share/toft/workspaces");
    let inside = |path: &Path| path.file_name().is_some_and(|name| name == ".git") || path.starts_with(&workspaces);
    open_to_others(&repo.join(".git/toft"), &inside, &mut found);
    for dir in [".local/state/toft", ".local/share/toft"] {
        open_to_others(&users.join(dir), &inside, &mut found);
    }
    open_to_others(home.path(), &|path| !path.ends_with("kept.backup"), &mut found);
    for dir in [repo.join(".git/toft"), users.join(".local/state/toft"), users.join(".local/share/toft"), workspaces] {
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&dir).unwrap());
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", dir.display());
    }
    // Inside a directory that nobody else can enter, the runner's own files are as its part of toft makes them.
    found.retain(|line| !line.contains(".git/toft/attempts/") && !line.contains(".git/toft/run"));
    assert!(found.is_empty(), "{found:#?}");
}
