//! Asking and answering: epics that follow their parts, lists, times, explanations, hints.

use toft_stories::prelude::*;
use toft_stories::repositories::status_of as status;

#[test]
fn an_epic_closes_with_its_last_part_and_opens_again_with_one() {
    let (home, repo) = Home::with_repository("api");
    let whole = add(&home, &repo, &["The whole", "-t", "epic"]);
    let half = add(&home, &repo, &["A half", "-t", "epic", "--parent", &whole]);
    let first = add(&home, &repo, &["First", "--parent", &half]);
    let second = add(&home, &repo, &["Second", "--parent", &half]);
    home.toft(&repo, &["close", &first]).ok();
    assert_eq!(status(&home, &repo, &half), "open");

    // By an agent's finish, through every level, and the outcome says so.
    home.toft(&repo, &["claim", &second]).ok();
    home.toft(&repo, &["finish", "--no-change", "x", "--json"]).says("is closed too: all its parts are closed");
    assert_eq!(status(&home, &repo, &half), "closed");
    assert_eq!(status(&home, &repo, &whole), "closed");
    assert!(home.toft(&repo, &["show", &half]).ok().contains("all its parts are closed"));
    // Its closing was nobody's operation.
    assert!(home.toft(&repo, &["history", &half]).ok().contains("epic.closed"));

    // A part that is open again, or a new one, opens what closed by itself.
    home.toft(&repo, &["reopen", &second]).ok();
    assert_eq!((status(&home, &repo, &half).as_str(), status(&home, &repo, &whole).as_str()), ("open", "open"));
    home.toft(&repo, &["undo"]).ok();
    assert_eq!(status(&home, &repo, &whole), "closed");
    let third = add(&home, &repo, &["Third", "--parent", &half]);
    assert_eq!(status(&home, &repo, &half), "open");
    home.toft(&repo, &["delete", &third]).ok();
    assert_eq!(status(&home, &repo, &half), "closed");

    // What was closed by hand stays closed.
    home.toft(&repo, &["reopen", &whole]).ok();
    home.toft(&repo, &["close", &whole, "-m", "enough"]).ok();
    home.toft(&repo, &["reopen", &first]).ok();
    assert_eq!((status(&home, &repo, &half).as_str(), status(&home, &repo, &whole).as_str()), ("open", "closed"));
}

#[test]
fn an_epic_in_another_ledger_follows_its_part() {
    let home = Home::new();
    let (repo, team) = (home.repo("api"), home.path().join("team"));
    std::fs::create_dir(&team).unwrap();
    home.toft(&repo, &["ledger", "add", "team", team.to_str().unwrap()]).ok();
    let epic = add(&home, &repo, &["The whole", "-t", "epic", "--ledger", "team"]);
    let part = add(&home, &repo, &["A part", "--parent", &epic, "--ledger", "."]);
    home.toft(&repo, &["close", &part]).ok();
    assert_eq!(status(&home, &repo, &epic), "closed");
    home.toft(&repo, &["undo"]).ok();
    assert_eq!(status(&home, &repo, &epic), "open");
}

#[test]
fn an_epic_whose_last_parts_two_clones_closed_closes_when_they_sync() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["one", "two"]));
    let (one, two) = (&clones[0], &clones[1]);
    let sync = |clone: &Path| home.toft(clone, &["sync"]).ok();
    let epic = add(&home, one, &["The whole", "-t", "epic"]);
    let parts = ["a", "b"].map(|title| add(&home, one, &[title, "--parent", &epic]));
    sync(one);
    sync(two);
    home.toft(one, &["close", &parts[0]]).ok();
    home.toft(two, &["close", &parts[1]]).ok();
    sync(one);
    sync(two);
    sync(one);
    let both = |wanted: &str| {
        assert_eq!([one, two].map(|clone| status(&home, clone, &epic)), [wanted, wanted]);
    };
    both("closed");

    // A part that one clone adds while another closes the last that it knows opens the epic again.
    home.toft(one, &["reopen", &parts[0]]).ok();
    sync(one);
    sync(two);
    both("open");
    home.toft(one, &["close", &parts[0]]).ok();
    add(&home, two, &["c", "--parent", &epic]);
    sync(one);
    sync(two);
    sync(one);
    both("open");
}

#[test]
fn times_are_local_and_relative_in_text_and_utc_in_json() {
    let mut home = Home::new();
    home.set("TZ", "Asia/Kathmandu");
    let repo = home.repo("api");
    let id = add(&home, &repo, &["Later", "--defer", "3d", "--due", "5d"]);
    let other = add(&home, &repo, &["Now"]);
    let shown = home.toft(&repo, &["show", &id, "--why"]).ok();
    let json = home.toft(&repo, &["show", &id, "--json"]).data();
    let due = json["due"].as_str().unwrap();
    assert!(due.ends_with('Z'), "{json}");
    let local = home.run(&repo, "date", &["-d", due, "+%Y-%m-%d %H:%M"]);
    let local = local.trim();
    assert!(shown.contains(&format!("due {local}, in 5 days")), "{shown}");
    assert!(shown.contains("deferred until ") && shown.contains(", in 3 days"), "{shown}");
    assert!(shown.contains("created at ") && shown.contains(", just now by "), "{shown}");
    let claimed = home.toft(&repo, &["claim", &other]).ok();
    assert!(claimed.contains(", in "), "{claimed}");
    let held = home.toft(&repo, &["claim", &other, "--as", "ben"]).fails(5);
    for text in [&shown, &claimed, &held, &home.toft(&repo, &["history"]).ok(), &home.toft(&repo, &["status"]).ok()] {
        let utc = text.split_whitespace().find(|word| word.len() > 18 && word.contains("T1") && word.contains('Z'));
        assert_eq!(utc, None, "{text}");
    }
    assert!(home.toft(&repo, &["agent", "list"]).ok().contains("seen just now"));
}

#[test]
fn why_says_of_started_work_what_it_waits_for() {
    let (home, repo) = Home::with_repository("api");
    let [asks, rests, free] = ["Asks", "Rests", "Free"].map(|title| add(&home, &repo, &[title]));
    home.toft(&repo, &["claim", &asks, "--as", "a"]).ok();
    home.toft(&repo, &["finish", "waiting", "-m", "Which one?", "--as", "a"]).ok();
    home.toft(&repo, &["claim", &rests, "--as", "b"]).ok();
    home.toft(&repo, &["finish", "failed", "-m", "broke", "--as", "b"]).ok();
    home.toft(&repo, &["claim", &free, "--as", "c"]).ok();
    home.toft(&repo, &["finish", "release", "-m", "later", "--as", "c"]).ok();
    let why = |id: &str| home.toft(&repo, &["show", id, "--why"]).ok();
    assert!(why(&asks).contains("it was started: waits for an answer to \"Which one?\""), "{}", why(&asks));
    assert!(why(&rests).contains("it was started: not before "), "{}", why(&rests));
    assert!(why(&free).contains("It can start now"), "{}", why(&free));
    let ready = listed(&home, &repo);
    assert_eq!([&asks, &rests, &free].map(|id| ready[id]["ready"].as_bool().unwrap()), [false, false, true]);
    assert_eq!(home.toft(&repo, &["show", &asks, "--why", "--json"]).data()["not_ready"][0]["why"], "started");
}

#[test]
fn a_dry_run_of_undo_refuses_as_undo_does() {
    let (home, repo) = Home::with_repository("api");
    let same = |args: &[&str]| {
        let dry = home.toft(&repo, &[args, &["-n"]].concat());
        let real = home.toft(&repo, args);
        assert_eq!((dry.code, &dry.err), (real.code, &real.err), "{args:?}");
        real
    };
    // Somebody wrote over it since.
    let id = add(&home, &repo, &["One", "--as", "ann"]);
    home.toft(&repo, &["edit", &id, "-p", "0", "--as", "ann"]).ok();
    home.toft(&repo, &["edit", &id, "-p", "1", "--as", "ben"]).ok();
    assert!(same(&["undo", "--as", "ann"]).fails(5).contains("changed since"));
    // Something hangs on it.
    let parent = add(&home, &repo, &["Whole", "--as", "cat"]);
    add(&home, &repo, &["Part", "--parent", &parent, "--as", "ben"]);
    assert!(same(&["undo", "--as", "cat"]).fails(5).contains("hangs on it"));
    // Somebody works on it.
    let held = add(&home, &repo, &["Held", "--as", "dan"]);
    home.toft(&repo, &["edit", &held, "--title", "Important", "--as", "dan"]).ok();
    home.toft(&repo, &["claim", &held, "--as", "ben"]).ok();
    assert!(same(&["undo", "--as", "dan"]).fails(5).contains("works on it"));
    home.toft(&repo, &["finish", "--no-change", "x", "--as", "ben"]).ok();
    assert!(same(&["undo", "--as", "dan"]).fails(5).contains("finished since"));
    // What can be taken back is shown, and nothing is done; several at once are shown together.
    let free = add(&home, &repo, &["Free", "--as", "eve"]);
    home.toft(&repo, &["edit", &free, "-p", "0", "--as", "eve"]).ok();
    assert_eq!(home.toft(&repo, &["undo", "2", "-n", "--as", "eve"]).ok().lines().count(), 2);
    home.toft(&repo, &["undo", "2", "--as", "eve"]).ok();
    home.toft(&repo, &["undo", "--redo", "-n", "--as", "eve"]).ok();
    home.toft(&repo, &["undo", "--redo", "2", "--as", "eve"]).ok();
    assert_eq!(listed(&home, &repo)[&free]["priority"], 0);
}

#[test]
fn a_workspace_of_another_clone_is_named_as_such_and_not_as_broken() {
    let mut home = Home::new();
    home.set("TOFT_STORE", "global");
    let (_, clones) = cloned(&home, &["one", "two"]);
    let (one, two) = (&clones[0], &clones[1]);
    let id = add(&home, one, &["Work"]);
    home.toft(one, &["claim", &id, "--ws", "--as", "a"]).ok();
    let name = home.toft(one, &["ws", "list", "--json"]).data()[0]["name"].as_str().unwrap().to_owned();
    let help = format!("toft -C {} ws list {name}", one.display());
    home.toft(two, &["ws", "list"]).says_all(&[&format!("belongs to the clone {}", one.display()), &help]);
    assert_eq!(home.toft(two, &["ws", "list", "--json"]).data()[0]["other_clone"], one.to_str().unwrap());
    assert!(!home.toft(two, &["status"]).ok().contains("Broken"));
    assert!(!home.toft(two, &["doctor"]).ok().contains(&name));
    home.toft(one, &["finish", "--no-change", "x", "--as", "a"]).ok();
    // Only its own clone takes it down.
    home.toft(two, &["ws", "gc"]).says_all(&["kept", &help]);
    let refused = home.toft(two, &["ws", "rm", &name]);
    assert!(refused.code != 0 && refused.err.contains("another clone"), "{refused:?}");
    assert!(home.toft(one, &["ws", "gc"]).ok().contains("removed"));
    // A link that really leads nowhere is still broken.
    let other = add(&home, one, &["More"]);
    home.toft(one, &["claim", &other, "--ws", "--as", "a"]).ok();
    let path = home.toft(one, &["ws", "path", &other]).ok();
    std::fs::write(Path::new(path.trim()).join(".git"), "gitdir: /nowhere/worktrees/x\n").unwrap();
    assert!(home.toft(two, &["status"]).ok().contains("Broken"));
}

#[test]
fn a_graph_wraps_titles_and_marks_the_critical_path() {
    let (mut home, repo) = Home::with_repository("api");
    let long = "Pin the schema of every table that orders touch before anything else is done with it";
    let first = add(&home, &repo, &[long]);
    let second = add(&home, &repo, &["Second", "--needs", &first]);
    let third = add(&home, &repo, &["Third", "--needs", &second]);
    let beside = add(&home, &repo, &["Beside"]);
    let drawn = home.toft(&repo, &["list", "--graph"]).ok();
    assert!(drawn.contains("* critical path: 3 issues"), "{drawn}");
    for (id, marked) in [(&first, true), (&third, true), (&beside, false)] {
        assert_eq!(drawn.contains(&format!("*{id}  P2")), marked, "{drawn}");
    }
    let json = home.toft(&repo, &["list", "--graph", "--json"]).data();
    assert_eq!(json["critical_path"], serde_json::json!([first, second, third]));
    home.set("COLUMNS", "48");
    let narrow = home.toft(&repo, &["list", "--graph"]).ok();
    assert!(narrow.lines().all(|line| line.chars().count() <= 48), "{narrow}");
    let words = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(long), "{narrow}");
    home.toft(&repo, &["close", &first, &second]).ok();
    assert!(!home.toft(&repo, &["list", "--graph"]).ok().contains("critical path"));
}

#[test]
fn taking_workspaces_down_says_what_becomes_of_their_branches() {
    let (home, repo) = Home::with_repository("api");
    let committed = |title: &str| {
        let id = add(&home, &repo, &[title]);
        home.toft(&repo, &["claim", &id, "--ws", "--as", title]).ok();
        let path = home.toft(&repo, &["ws", "path", &id]).ok();
        let path = Path::new(path.trim()).to_owned();
        fs::write(path.join(title), title).unwrap();
        commit_all(&home, &path, title);
        home.toft(&repo, &["finish", "--evidence", "HEAD", "-m", "x", "--as", title]);
        let branch = home.run(&path, "git", &["branch", "--show-current"]).trim().to_owned();
        (id, branch)
    };
    let (one, first) = committed("one");
    let (_, second) = committed("two");
    let exists = |branch: &str| !home.run(&repo, "git", &["branch", "--list", branch]).is_empty();
    home.toft(&repo, &["ws", "rm", &one]).refuses(5, format!("branch {first} keeps the commit"));
    let gone = home.toft(&repo, &["ws", "rm", &one, "--rescue"]).ok();
    assert!(gone.contains(&format!("branch {first} keeps the commit")) && exists(&first), "{gone}");
    home.run(&repo, "git", &["merge", "-q", "--no-edit", &first]);
    home.run(&repo, "git", &["merge", "-q", "--no-edit", &second]);
    let would = home.toft(&repo, &["ws", "gc", "-n"]).ok();
    assert!(would.contains(&format!("would delete branch {second}")) && exists(&second), "{would}");
    let tidied = home.toft(&repo, &["ws", "gc"]).ok();
    for branch in [&first, &second] {
        assert!(tidied.contains(&format!("deleted branch {branch}")) && !exists(branch), "{tidied}");
    }
}

#[test]
fn toft_alone_says_the_next_step() {
    let home = Home::new();
    let said = home.toft(home.path(), &[]).ok();
    assert!(said.starts_with("This directory is not in a repository.") && said.contains("toft try"), "{said}");
    let repo = home.git("shop");
    let said = home.toft(&repo, &[]).ok();
    assert!(said.starts_with("shop is a git repository. toft is not set up in it."), "{said}");
    assert!(said.contains("keep issues in .git/toft;") && !said.contains(".beads"), "{said}");
    std::fs::create_dir(repo.join(".beads")).unwrap();
    assert!(home.toft(&repo, &[]).ok().contains("toft import beads .beads"));
    home.toft(&repo, &["init"]).ok();
    assert_eq!(home.toft(&repo, &[]).ok(), home.toft(&repo, &["status"]).ok());
}

#[test]
fn words_that_people_try_are_answered_with_the_next_step_and_nothing_destructive() {
    let (home, repo) = Home::with_repository("api");
    let tried = [
        ("merge", "toft land"),
        ("stats", "toft status"),
        ("open", "toft reopen"),
        ("remove", "toft close"),
        ("reset", "toft undo -n"),
        ("prune", "toft ws gc -n"),
        ("cancel", "toft finish release"),
        ("tasks", "toft list tasks"),
        ("config", "toft doctor"),
        ("unassign", "--assignee"),
        ("pick", "toft claim"),
        ("check", "toft doctor"),
        ("finsh", "`finish`"),
        ("shwo", "`show`"),
    ];
    let destructive = ["delete", "purge", "abandon", " rm", "stop", "reject"];
    for (word, wanted) in tried {
        let said = home.toft(&repo, &[word]).fails(2);
        assert!(said.contains(wanted), "{word}: {said}");
        assert!(!destructive.iter().any(|word| said.contains(word)), "{word}: {said}");
    }
    for (typed, wanted) in [
        (&["ws", "show", "x"][..], "toft ws list"),
        (&["flow", "retry", "x"], "toft retry"),
        (&["agent", "pause", "bob"], "toft pause"),
        (&["edit", "x", "--close", "y"], "toft close"),
        (&["edit", "x", "--reopen"], "toft reopen"),
        (&["list", "--here"], "--worktree ."),
        (&["redo"], "toft undo --redo"),
        (&["ledger", "frobnicate"], "toft ledger takes"),
        (&["land", "--force"], "toft land --help"),
    ] {
        home.toft(&repo, typed).refuses(2, wanted);
    }
    // A misspelt command that deletes is answered, and not with its name.
    for word in ["delte", "purgee", "stpo", "abandn"] {
        let said = home.toft(&repo, &[word]).fails(2);
        assert!(!said.contains("did you mean") && said.contains("help:"), "{word}: {said}");
    }
}
