//! Who somebody is: a session and not a name, a repository and not a clone, a process that can be seen and not one that is
//! guessed at.

use toft_stories::prelude::*;

/// A task that one session holds, and its fence.
fn claimed(home: &Home, repo: &Path, session: &str, args: &[&str]) -> (String, String) {
    let args = [&["claim", "--json"], args].concat();
    let claim = home.toft_with(repo, &[("TOFT_SESSION", session)], &args).data();
    let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    (word(&claim["task"]["id"]), word(&claim["lease"]["token"]))
}

#[test]
fn a_stale_session_of_the_same_name_changes_nothing() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let (task, _) = claimed(&home, &repo, "one", &["--ttl", "1s"]);
    thread::sleep(Duration::from_millis(1_300));
    claimed(&home, &repo, "two", &[]);
    let one = [("TOFT_SESSION", "one")];
    for args in [
        &["finish", "--no-change", "by the stale one"][..],
        &["finish", &task, "--no-change", "by the stale one"],
        &["finish", &task["tk_".len()..], "--no-change", "by the stale one"],
        &["save", "-m", "stale"],
    ] {
        assert!(home.toft_with(&repo, &one, args).fails(5).contains("has ended"), "{args:?}");
    }
    home.toft_with(&repo, &[("TOFT_SESSION", "three")], &["finish", &task, "release"])
        .refuses_all(5, &["another session of ana", "--take-over"]);
    home.toft_with(&repo, &[("TOFT_SESSION", "two")], &["save", "-m", "still at it"]).ok();
    home.toft_with(&repo, &[("TOFT_SESSION", "two")], &["finish", "--no-change", "x"]).ok();
}

#[test]
fn a_session_may_take_over_what_another_of_the_same_agent_left() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let (task, _) = claimed(&home, &repo, "yesterday", &[]);
    let today = [("TOFT_SESSION", "today")];
    home.toft_with(&repo, &today, &["finish", &task, "release"]).fails(5);
    home.toft_with(&repo, &today, &["claim", &task]).fails(5);
    home.toft_with(&repo, &[("TOFT_SESSION", "bob")], &["claim", &task, "--take-over", "--as", "bob"]).fails(5);
    home.toft_with(&repo, &today, &["claim", &task, "--take-over"]).ok();
    home.toft_with(&repo, &[("TOFT_SESSION", "yesterday")], &["save", "-m", "late"]).fails(5);
    home.toft_with(&repo, &today, &["finish", "--no-change", "x"]).ok();
}

#[test]
fn a_shell_and_what_it_starts_are_one_session_and_another_shell_is_another() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    let bin = toft_bin().display().to_string();
    let script = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text.replace("TOFT", &bin)).unwrap();
        home.command(&repo, "bash", &[path.to_str().unwrap()]).output().unwrap()
    };
    let one = script("one.sh", "TOFT claim -q && sh -c 'TOFT save -m half' && (TOFT finish --no-change x)");
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    assert!(script("two.sh", "TOFT claim -q").status.success());
    let other = script("three.sh", "TOFT finish --no-change x");
    assert_eq!(other.status.code(), Some(5), "{}", String::from_utf8_lossy(&other.stderr));
}

#[test]
fn a_hook_writes_only_under_its_own_sessions_fence() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    let (task, fence) = claimed(&home, &repo, "s", &["--as", "ana-1", "--ttl", "1s"]);
    thread::sleep(Duration::from_millis(1_300));
    for _ in 0..2 {
        claimed(&home, &repo, "s", &["--as", "ana-1"]);
    }
    let before = home.toft(&repo, &["history", "--json", "--limit", "100"]).data();
    let stale = [("TOFT_AGENT", "ana-1"), ("TOFT_TASK", task.as_str()), ("TOFT_FENCE", &fence), ("TOFT_SESSION", "s")];
    home.toft_with(&repo, &stale, &["save", "-m", "stale"]).fails(5);
    home.toft_with(&repo, &stale, &["finish", &task["tk_".len()..], "--no-change", "x"]).fails(5);
    home.toft_with(&repo, &stale, &["hook", "PreCompact"]).ok();
    home.toft_with(&repo, &stale, &["hook", "Stop"]).ok();
    assert_eq!(home.toft(&repo, &["history", "--json", "--limit", "100"]).data(), before, "nothing was written");
    let shown = home.toft(&repo, &["history", "--json", "--limit", "100"]).ok();
    let token = fence.split('.').nth(1).unwrap();
    let task = home.toft(&repo, &["show", &task, "--json"]).ok();
    assert!(!shown.contains(token) && !task.contains(token), "fences are their holder's alone");
}

#[test]
fn an_agent_cannot_end_anothers_task_by_its_name() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    let (victim, _) = claimed(&home, &repo, "victim", &["--as", "ana-1"]);
    let (own, fence) = claimed(&home, &repo, "evil", &["--as", "ana-2"]);
    let evil = [("TOFT_AGENT", "ana-2"), ("TOFT_TASK", own.as_str()), ("TOFT_FENCE", fence.as_str())];
    for args in [
        &["finish", &victim, "--no-change", "all good", "--as", "ana-1"][..],
        &["save", &victim, "-m", "all good", "--as", "ana-1"],
        &["finish", &victim, "--fence", &fence, "--no-change", "all good", "--as", "ana-1"],
    ] {
        home.toft_with(&repo, &evil, args).fails(5);
    }
    home.toft_with(&repo, &[("TOFT_SESSION", "victim")], &["finish", "--as", "ana-1", "--no-change", "x"]).ok();
}

/// Runs toft in a mount namespace in which something else is mounted first.
fn in_namespace(home: &Home, dir: &Path, mounts: &str, args: &str) -> (i32, String) {
    let text = format!("{mounts}; cd {}; exec {} {args}", dir.display(), toft_bin().display());
    let output = home.command(dir, "unshare", &["-m", "bash", "-c", &text]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_machine_made_from_the_same_image_takes_no_living_lease() {
    let Some(server) = postgresql() else { return };
    let mut home = Home::new();
    home.behind_a_server(Some(&new_store_on(&server.url())));
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let mut living = home.command(&repo, "sleep", &["300"]).spawn().unwrap();
    let pid = living.id().to_string();
    home.toft(&repo, &["claim", "--as", "m1", "--pid", &pid, "--ttl", "90s"]).ok();
    let boot = home.path().join("boot");
    std::fs::write(&boot, "11111111-2222-3333-4444-555555555555\n").unwrap();
    let other_boot = format!("mount --bind {} /proc/sys/kernel/random/boot_id", boot.display());
    let (code, said) = in_namespace(&home, &repo, &other_boot, "--as m2 claim");
    assert_eq!(code, 6, "{said}");
    home.toft(&repo, &["save", "-m", "alive", "--as", "m1"]).ok();
    living.kill().unwrap();
    living.wait().unwrap();
    home.toft(&repo, &["claim", "--as", "m3"]).ok();
}

#[test]
fn a_process_that_may_not_be_seen_is_not_dead() {
    let Some(server) = postgresql() else { return };
    let mut home = Home::new();
    home.behind_a_server(Some(&new_store_on(&server.url())));
    home.set("TOFT_SESSION", "s");
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let mut living = home.command(&repo, "sleep", &["300"]).spawn().unwrap();
    let pid = living.id().to_string();
    home.toft(&repo, &["claim", "--as", "rooty", "--pid", &pid]).ok();
    home.run(&repo, "git", &["config", "--global", "--add", "safe.directory", "*"]);
    home.run(home.path(), "chmod", &["-R", "a+rX", "."]);
    home.run(home.path(), "chmod", &["a+rwX", "home", "."]);
    home.run(home.path(), "chmod", &["-R", "a+rwX", "api/.git/toft"]);
    let hidden = "mount -t proc -o hidepid=2 proc /proc";
    let user = format!("setpriv --reuid=65534 --regid=65534 --clear-groups {}", toft_bin().display());
    let text = format!("{hidden}; cd {}; {user} --as nobody claim", repo.display());
    let output = home.command(&repo, "unshare", &["-m", "bash", "-c", &text]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
    home.toft(&repo, &["save", "-m", "alive", "--as", "rooty"]).ok();
    living.kill().unwrap();
    living.wait().unwrap();
}

#[test]
fn clones_of_one_repository_are_one_and_a_stranger_sees_nothing() {
    let Some(server) = postgresql() else { return };
    let mut home = Home::new();
    home.behind_a_server(Some(&new_store_on(&server.url())));
    let up = home.path().join("up.git");
    home.run(home.path(), "git", &["init", "-q", "--bare", "-b", "main", up.to_str().unwrap()]);
    let a = home.repo("a");
    home.run(&a, "git", &["remote", "add", "origin", up.to_str().unwrap()]);
    home.run(&a, "git", &["push", "-q", "-u", "origin", "main"]);
    home.toft(&a, &["flow", "new", "Ship", "--task", "Pin schema", "--task", "Write"]).ok();
    home.run(home.path(), "git", &["clone", "-q", up.to_str().unwrap(), "b"]);
    let b = home.path().join("b");
    assert!(home.toft(&b, &["ready"]).fails(3).contains("toft init"), "it was never registered");
    home.toft(&b, &["init"]).ok();
    assert!(home.toft(&b, &["ready", "--as", "bob"]).ok().contains("Pin schema"));
    home.toft(&b, &["claim", "--as", "bob"]).ok();
    assert!(home.toft(&a, &["status"]).ok().contains("bob"));

    // The machine that claimed is gone for good: another machine watches the lease run out.
    home.toft_with(&a, &[("TOFT_HOST", "ha")], &["claim", "--as", "al", "--ttl", "2s"]).ok();
    std::fs::rename(&a, home.path().join("a.gone")).unwrap();
    home.toft_with(&b, &[("TOFT_HOST", "hb")], &["claim", "--as", "bea", "--wait=20s"]).ok();

    // Another repository, and a fork that names nothing in common, are others.
    let stranger = home.git("stranger");
    for args in [&["ready"][..], &["claim"], &["list", "tasks"], &["status"], &["run", "--once", "--", "true"]] {
        assert!(home.toft(&stranger, args).fails(3).contains("does not know the repository"), "{args:?}");
    }
    home.toft(&stranger, &["init"]).ok();
    assert!(home.toft(&stranger, &["ready"]).ok().contains("Nothing is ready"));
    home.toft(&stranger, &["claim"]).fails(6);
}

/// What a clone calls the repository in the store.
fn registered(home: &Home, dir: &Path) -> String {
    home.toft(dir, &["init"]).ok();
    let found = home.toft(dir, &["where", "--json"]).data();
    found["repository"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned()
}

/// Forks copy a ledger and strangers write it: it never says which repository it belongs to.
#[test]
fn a_remote_that_moves_is_learned_by_one_init_and_a_fork_with_the_same_ledger_is_another() {
    let mut home = Home::new();
    home.use_store("global");
    let git = |dir: &Path, args: &[&str]| home.run(dir, "git", args);
    let a = home.git("a");
    git(&a, &["remote", "add", "origin", "https://old.example.org/team/app.git"]);
    let id = registered(&home, &a);
    home.toft(&a, &["flow", "new", "Ship", "--task", "secret work"]).ok();
    home.toft(&a, &["add", "An issue"]).ok();
    let clone = |name: &str, url: &str| {
        let dir = home.path().join(name);
        git(home.path(), &["clone", "-q", a.to_str().unwrap(), name]);
        git(&dir, &["remote", "set-url", "origin", url]);
        dir
    };
    // The same history and the same ledger, and nothing in common that names a place.
    let fork = clone("fork", "https://example.org/stranger/app.git");
    let ledger = fork.join(".git/toft/ledger");
    std::fs::create_dir_all(&ledger).unwrap();
    std::fs::copy(a.join(".git/toft/ledger/issues.jsonl"), ledger.join("issues.jsonl")).unwrap();
    assert_ne!(registered(&home, &fork), id);
    assert!(!home.toft(&fork, &["ready"]).ok().contains("secret work"));

    git(&a, &["remote", "set-url", "origin", "git@new.example.org:team/app.git"]);
    assert_eq!(registered(&home, &a), id, "a clone remembers");
    let b = clone("b", "https://new.example.org/team/app");
    assert_eq!(registered(&home, &b), id, "and the others follow");
    assert!(home.toft(&b, &["ready"]).ok().contains("secret work"));
}

#[test]
fn evidence_is_a_commit_that_exists_and_is_new() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let old = [("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")];
    let commit = |env: &[(&str, &str)]| {
        let args = ["commit", "-q", "--allow-empty", "-m", "work"];
        assert!(home.command(&repo, "git", &args).envs(env.iter().copied()).status().unwrap().success());
    };
    commit(&old);
    home.toft(&repo, &["claim"]).ok();
    assert!(home.toft(&repo, &["finish", "--evidence", "deadbeef"]).fails(2).contains("no commit here"));
    assert!(home.toft(&repo, &["finish", "--evidence", "HEAD"]).fails(2).contains("before work on this began"));
    assert!(home.toft(&repo, &["finish", "--evidence", "--output=/tmp/x"]).code != 0);
    commit(&[]);
    home.toft(&repo, &["finish", "--evidence", "HEAD"]).ok();
}

#[test]
fn no_step_of_a_servers_clock_frees_a_living_lease() {
    if !has_postgresql() {
        return;
    }
    let mut home = Home::new();
    let clock = home.path().join("clock");
    let set = |shift: &str| std::fs::write(&clock, shift).unwrap();
    set("+0");
    home.run(home.path(), "chmod", &["a+rx", "."]);
    let Some(server) = Cluster::start_with_clock(&clock) else {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "faketime is not installed");
        return;
    };
    home.behind_a_server(Some(&new_store_on(&server.url())));
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A", "--task", "B"]).ok();
    let mut living = home.command(&repo, "sleep", &["300"]).spawn().unwrap();
    let (pid, ha, hb) = (living.id().to_string(), [("TOFT_HOST", "ha")], [("TOFT_HOST", "hb")]);
    for agent in ["one", "two"] {
        home.toft_with(&repo, &ha, &["claim", "--as", agent, "--pid", &pid, "--ttl", "90s"]).ok();
    }
    for shift in ["+120s", "+365d", "-1h", "+0"] {
        set(shift);
        home.toft_with(&repo, &hb, &["claim", "--as", "thief"]).fails(6);
        home.toft_with(&repo, &ha, &["save", "-m", "still at it", "--as", "one"]).ok();
    }
    let log = home.toft(&repo, &["history", "--limit", "100"]).ok();
    assert!(!log.contains("lease.lost"), "{log}");
    living.kill().unwrap();
    living.wait().unwrap();
}

#[test]
fn scripts_containers_and_odd_options_keep_their_own_hold() {
    let (home, repo) = Home::with_repository("api");
    let tasks: Vec<String> = (0..6).flat_map(|n| ["--task".to_owned(), format!("t{n}")]).collect();
    let args: Vec<&str> = ["flow", "new", "Ship"].into_iter().chain(tasks.iter().map(String::as_str)).collect();
    home.toft(&repo, &args).ok();
    let bin = toft_bin().display().to_string();
    let script = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text.replace("TOFT", &bin)).unwrap();
        path.display().to_string()
    };
    let run = |program: &str, args: &[&str]| {
        let output = home.command(&repo, program, args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    // What runs in a subshell belongs to the script.
    run("bash", &[&script("sub.sh", "id=$(TOFT claim -q | tail -1 || true)\nTOFT finish $id --no-change z")]);
    run(
        "bash",
        &[
            "--noprofile",
            "--norc",
            "-e",
            "-o",
            "pipefail",
            &script("opt.sh", "( TOFT claim -q; true )\nTOFT finish --no-change z"),
        ],
    );
    // The first process of a container may be the agent.
    let agent = script("agent.sh", "bash -c 'TOFT claim -q; true'\nbash -c 'TOFT finish --no-change z; exit $?'");
    run("unshare", &["-pf", "--mount-proc", "bash", &agent]);
    // Two scripts that are given `-c` are two sessions.
    let hold = script("hold.sh", "TOFT claim -q && sleep 3 && TOFT finish --no-change z");
    let mut first = home.command(&repo, "bash", &[&hold, "-c", "1"]).spawn().unwrap();
    let held = || home.toft(&repo, &["list", "tasks", "--status", "leased", "-q"]).ok();
    until(20, "the first has claimed", || !held().is_empty());
    let other = script("other.sh", "TOFT finish --no-change evil");
    let stolen = home.command(&repo, "bash", &[&other, "-c", "2"]).output().unwrap();
    assert_eq!(stolen.status.code(), Some(5), "{}", String::from_utf8_lossy(&stolen.stderr));
    let taken = home
        .command(&repo, "bash", &["-c", &format!("{bin} claim {} --take-over; exit $?", held().trim())])
        .output()
        .unwrap();
    assert_eq!(taken.status.code(), Some(5), "a session that runs is not taken over");
    assert!(first.wait().unwrap().success());
}
