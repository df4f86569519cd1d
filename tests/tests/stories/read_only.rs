//! Reading works where the store may not be written, and each obstacle has its own words.

use toft_stories::prelude::*;

/// A repository with an issue, a workflow, a hold and a checkpoint.
fn filled(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    home.toft(&repo, &["add", "Pin the schema"]).ok();
    home.toft(&repo, &["flow", "new", "F", "--task", "A", "--task", "B"]).ok();
    home.toft(&repo, &["--as", "w", "claim"]).ok();
    home.toft(&repo, &["--as", "w", "save", "-m", "half of it"]).ok();
    home.toft(&repo, &["list"]).ok();
    repo
}

/// Runs toft where nothing but `scratch` can be written.
fn sandboxed(home: &Home, repo: &Path, scratch: &Path, args: &[&str]) -> Said {
    let bin = toft_bin();
    let scratch = scratch.to_str().unwrap();
    let mut all = vec!["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", scratch, scratch];
    all.extend(["--setenv", "TMPDIR", scratch, bin.to_str().unwrap()]);
    all.extend(args);
    let output = home.command(repo, "bwrap", &all).output().unwrap();
    Said::from(args, &output)
}

const READING: [&[&str]; 6] =
    [&["ready"], &["list", "--all"], &["status"], &["history", "--limit", "100"], &["prime"], &["flow", "list"]];

#[test]
fn reading_works_where_the_store_cannot_be_written() {
    let (home, repo) = Home::with(filled);
    let scratch = home.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let reads = |why: &str| {
        for args in READING {
            let said = sandboxed(&home, &repo, &scratch, args);
            assert_eq!((said.code, said.err.as_str()), (0, ""), "{why}: {said:?}");
        }
        assert!(sandboxed(&home, &repo, &scratch, &["status"]).ok().contains('w'), "{why}");
        assert!(sandboxed(&home, &repo, &scratch, &["history", "--limit", "100"]).ok().contains("save"), "{why}");
        assert!(sandboxed(&home, &repo, &scratch, &["list", "--all"]).ok().contains("Pin the schema"), "{why}");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{why}: nothing is left behind");
    };
    reads("its log and shared memory are there");
    let store = repo.join(".git/toft/toft.db");
    fs::remove_file(store.with_extension("db-shm")).unwrap();
    reads("there is no shared memory, and a log");
    home.run(&repo, "sqlite3", &[store.to_str().unwrap(), "pragma wal_checkpoint(truncate)"]);
    for end in ["db-shm", "db-wal"] {
        let _ = fs::remove_file(store.with_extension(end));
    }
    reads("there is neither");

    // The index of the ledger follows a change that was made outside.
    let ledger = repo.join(".git/toft/ledger/issues.jsonl");
    let text = fs::read_to_string(&ledger).unwrap().replace("Pin the schema", "Pin the schema twice");
    fs::write(&ledger, text).unwrap();
    // It reads several rows in one snapshot.
    sandboxed(&home, &repo, &scratch, &["ready"]).ok();
    assert!(sandboxed(&home, &repo, &scratch, &["list", "--all"]).ok().contains("Pin the schema twice"));

    let before = fs::read(&store).unwrap();
    for args in [&["--as", "v", "claim"][..], &["flow", "new", "G", "--task", "x"], &["--as", "w", "save", "-m", "x"]] {
        let said = sandboxed(&home, &repo, &scratch, args).fails(4);
        assert!(said.starts_with("error[read_only]") && said.contains("sandbox"), "{said}");
    }
    assert!(fs::read(&store).unwrap() == before);
    home.toft(&repo, &["--as", "v", "claim"]).ok();
}

#[test]
fn a_store_of_another_user_is_an_obstacle_with_its_own_words() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let (home, repo) = Home::with(filled);
    for dir in [home.path(), &home.path().join("home"), &repo, &repo.join(".git")] {
        home.run(home.path(), "chmod", &["755", dir.to_str().unwrap()]);
    }
    let bin = home.path().join("toft");
    fs::copy(toft_bin(), &bin).unwrap();
    let nobody = |args: &[&str]| {
        let mut all = vec!["--reuid=65534", "--regid=65534", "--clear-groups", bin.to_str().unwrap()];
        all.extend(args);
        home.command(&repo, "setpriv", &all).output().unwrap()
    };
    let denied = nobody(&["ready"]);
    let text = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert_eq!(denied.status.code(), Some(4), "{text}");
    assert!(text.starts_with("error[access_denied]") && text.contains("toft doctor"), "{text}");
    // Whoever may read it reads it.
    home.run(&repo, "chmod", &["-R", "a+rX", ".git/toft"]);
    let read = nobody(&["status"]);
    assert_eq!(read.status.code(), Some(0), "{read:?}");
    let denied = nobody(&["flow", "new", "G", "--task", "x"]);
    assert_eq!(denied.status.code(), Some(4), "{denied:?}");
}

#[test]
fn a_server_that_does_not_know_the_user_says_so_at_once_and_no_password_is_shown() {
    let Some(cluster) = postgresql() else { return };
    let (home, repo) = Home::with(|home| home.git("api"));
    let url = cluster.url().replace("toft@", "stranger:s3cretPw9@");
    let start = Instant::now();
    for args in [&["token", "list"][..], &["doctor"], &["where"], &["where", "--json"], &["token", "list", "--json"]] {
        let said = home.toft(&repo, &[&["--store", &url], args].concat());
        if args[0] != "where" {
            assert_eq!(said.code, 4, "{said:?}");
            assert!((said.err + &said.out).contains("the user and password of its URL"), "{:?}", said.args);
        } else {
            assert!(!(said.err + &said.out).contains("s3cretPw9"));
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "nobody waits for that: {:?}", start.elapsed());
    // Spellings that are no address, or hide the word.
    for text in [
        "postgres:/ana:s3cretPw9@h/db",
        "mysql://ana:s3cretPw9@h/db",
        "postgres://h:port/db?password=s3cretPw9",
        "postgres://127.0.0.1:x/db?user=ana&pass%77ord=s3cretPw9",
    ] {
        for args in [&["ready"][..], &["where"], &["where", "--json"]] {
            let said = home.toft(&repo, &[&["--store", text], args].concat());
            assert!(!(said.err.clone() + &said.out).contains("s3cretPw9"), "{said:?}");
        }
    }
}

#[test]
fn nothing_in_a_shared_temporary_directory_is_used_to_take_turns() {
    let Some(cluster) = postgresql() else { return };
    let mut home = Home::new();
    let [shared, victim, runtime] = ["shared", "victim", "runtime"].map(|name| home.path().join(name));
    for dir in [&shared, &victim, &runtime] {
        fs::create_dir(dir).unwrap();
    }
    home.set("TMPDIR", shared.to_str().unwrap());
    home.behind_a_server(Some(&format!("{}?space=inj", cluster.url())));
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "F", "--task", "A"]).ok();
    home.toft(&repo, &["ready"]).ok();
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0, "nothing is written there");
    // A runtime directory that others can write, and one in which somebody planted a link, are not used.
    home.run(home.path(), "chmod", &["1777", runtime.to_str().unwrap()]);
    home.set("XDG_RUNTIME_DIR", runtime.to_str().unwrap());
    home.toft(&repo, &["ready"]).ok();
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), 0);
    home.run(home.path(), "chmod", &["0700", runtime.to_str().unwrap()]);
    std::os::unix::fs::symlink(&victim, runtime.join("toft")).unwrap();
    home.toft(&repo, &["ready"]).ok();
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "no link is followed");
}
