//! The holds of a session, however many they are; and what becomes of a claim whose workspace cannot be had.
#![cfg(target_os = "linux")]

use toft_stories::agents::none_left;
use toft_stories::prelude::*;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// How many files a command opens.
fn opened(home: &Home, repo: &Path, args: &[&str]) -> (usize, Said) {
    let log = home.path().join("strace.log");
    let bin = toft_bin();
    let words = ["-f", "-o", log.to_str().unwrap(), "-e", "trace=openat,open", bin.to_str().unwrap()];
    let output = home.command(repo, "strace", &[&words, args].concat()).output().unwrap();
    let said = Said::from(args, &output);
    (fs::read_to_string(log).unwrap().lines().count(), said)
}

#[test]
fn a_session_with_hundreds_of_holds_opens_no_more_files_than_one_with_a_single_hold() {
    let mut home = Home::new();
    home.set("TOFT_SESSION", "the one");
    let repo = home.repo("api");
    let plan = home.path().join("plan.json");
    let tasks: Vec<_> = (0..220).map(|n| json!({ "name": format!("t{n}") })).collect();
    fs::write(&plan, json!({ "title": "load", "tasks": tasks }).to_string()).unwrap();
    home.toft(&repo, &["flow", "new", "--file", plan.to_str().unwrap()]).ok();
    let round = || {
        let (claim, said) = opened(&home, &repo, &["claim", "--json"]);
        let task = text(&said.data()["task"]["id"]);
        let (finish, said) = opened(&home, &repo, &["finish", &task, "--no-change", "x"]);
        said.ok();
        (claim, finish)
    };
    round();
    let few = round();
    home.toft(&repo, &["claim", "--count", "100"]).ok();
    home.toft(&repo, &["claim", "--count", "100"]).ok();
    let many = round();
    assert!(many.0 <= few.0 + 10 && many.1 <= few.1 + 10, "{few:?} with one hold, {many:?} with 200");
}

/// What lies below a directory, and what each thing lets others do.
fn modes(dir: &Path, found: &mut Vec<(PathBuf, u32)>) {
    found.push((dir.to_owned(), fs::metadata(dir).unwrap().permissions().mode() & 0o777));
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => modes(&path, found),
            false => found.push((path.clone(), fs::metadata(&path).unwrap().permissions().mode() & 0o777)),
        }
    }
}

#[test]
fn fences_can_be_read_by_their_user_alone() {
    let (home, repo) = Home::with_repository("api");
    start_flow(&home, &repo, &["A"], &[]);
    let session = [("TOFT_SESSION", "s")];
    home.toft_with(&repo, &session, &["--as", "w", "claim"]).ok();
    let mut found = Vec::new();
    modes(&repo.join(".git/toft/fences"), &mut found);
    assert!(found.len() > 3 && found.iter().all(|(_, mode)| mode & 0o077 == 0), "{found:?}");
    home.toft_with(&repo, &[("TOFT_SESSION", "other")], &["--as", "w", "finish", "--no-change", "x"]).fails(5);
    home.toft_with(&repo, &session, &["--as", "w", "finish", "--no-change", "x"]).ok();
}

/// What a session leaves behind is removed when another of the same agent first claims.
#[test]
fn holds_of_a_session_that_ended_are_removed_and_those_of_others_stay() {
    let (home, repo) = Home::with_repository("api");
    start_flow(&home, &repo, &["A", "B", "C"], &[]);
    let bin = toft_bin().display().to_string();
    let sessions = || {
        let agents = fs::read_dir(repo.join(".git/toft/fences")).unwrap().flatten().map(|entry| entry.path());
        agents.flat_map(|dir| fs::read_dir(dir).unwrap().flatten()).count()
    };
    let named = |name: &str| home.toft_with(&repo, &[("TOFT_SESSION", name)], &["claim"]).ok();
    named("kept");
    let script = agents::script(&home, "session", &format!("#!/bin/sh\n{bin} claim\ntrue\n"));
    home.run(&repo, &script, &[]);
    assert_eq!(sessions(), 2);
    named("new");
    assert_eq!(sessions(), 2, "that of the script is gone");
    let kept = [("TOFT_SESSION", "kept")];
    home.toft_with(&repo, &kept, &["save", "-m", "still mine"]).ok();
}

/// A workspace takes its time. A claim that is killed meanwhile was made all the same, and its session can give it back.
#[test]
fn a_claim_that_is_killed_while_its_workspace_is_made_leaves_the_session_its_hold() {
    let (mut home, repo) = Home::with_repository("api");
    start_flow(&home, &repo, &["A"], &[]);
    let git = home.run(&repo, "sh", &["-c", "command -v git"]);
    let began = home.path().join("began");
    let slow = format!(
        "#!/bin/sh\ncase \"$*\" in *worktree*add*) touch {}; sleep 5; exit 1 ;; esac\nexec {} \"$@\"\n",
        began.display(),
        git.trim()
    );
    let bin = home.path().join("slow");
    fs::create_dir(&bin).unwrap();
    agents::script(&home, "slow/git", &slow);
    let path = home.variable("PATH");
    home.set("TOFT_SESSION", "s");
    let mut command = home.command(&repo, toft_bin(), &["claim", "--ws"]);
    command.env("PATH", format!("{}:{path}", bin.display())).stdout(Stdio::null()).stderr(Stdio::null());
    let mut claim = command.spawn().unwrap();
    until(20, "git was never asked for a worktree", || began.exists());
    claim.kill().unwrap();
    claim.wait().unwrap();
    home.toft(&repo, &["save", "-m", "still mine"]).ok();
    home.toft(&repo, &["finish", "release"]).ok();
    none_left(&home);
}

/// What stands in the way of one task's workspace is no reason to take that task again and again.
#[test]
fn a_task_that_cannot_have_a_workspace_rests_and_the_next_claim_takes_another() {
    let (home, repo) = Home::with_repository("api");
    let tasks = start_flow(&home, &repo, &["A", "B"], &[]).1;
    let probe = data(&home, &repo, &["ws", "create", "--name", "probe"]);
    let place = PathBuf::from(text(&probe["path"])).with_file_name(&tasks[0]);
    fs::create_dir(&place).unwrap();
    fs::write(place.join("mine"), "in the way").unwrap();
    // Who names the task is told, and may try again at once.
    for _ in 0..2 {
        home.toft(&repo, &["claim", &tasks[0], "--ws"]).fails(5);
    }
    home.toft(&repo, &["claim", "--ws"]).fails(5);
    let claim = home.toft(&repo, &["claim", "--ws", "--json"]).data();
    assert_eq!(text(&claim["task"]["id"]), tasks[1]);
    assert_eq!(fs::read_to_string(place.join("mine")).unwrap(), "in the way");
    home.toft(&repo, &["claim", "--ws"]).fails(6);
}
