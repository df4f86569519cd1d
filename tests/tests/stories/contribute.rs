//! Contributing: plan in private, propose one issue, and publish nothing else.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::project::Project;

/// Added and removed lines of a diff.
fn changed(diff: &str) -> (Vec<&str>, Vec<&str>) {
    let of = |sign: char, header: &str| {
        diff.lines().filter(|line| line.starts_with(sign) && !line.starts_with(header)).map(|line| &line[1..]).collect()
    };
    (of('+', "+++"), of('-', "---"))
}

/// Proof 21, twice over.
#[test]
fn a_fork_with_fifty_private_issues_proposes_one_and_the_diff_holds_only_it() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, keeper, .. } = &project;
        for n in 0..50 {
            add(home, mine, &[&format!("Private {n}"), "--notes", "nobody's business"]);
        }
        let private = add(home, mine, &["Needed first, and private"]);
        let args = ["Dark mode", "-d", "It would be good", "--notes", "my own notes", "--needs", &private, "-l", "ui"];
        let id = add(home, mine, &args);
        home.toft(mine, &["edit", &id, "-m", "a private word", "--needs", &project.theirs]).ok();
        let diff = project.propose(&id);
        let (added, removed) = changed(&diff);
        assert!(added.len() == 1 && removed.is_empty(), "tree {tree}: {diff}");
        let line: Value = serde_json::from_str(added[0]).unwrap();
        assert_eq!(
            (&line["id"], &line["title"], &line["visibility"]),
            (&id.as_str().into(), &"Dark mode".into(), &"proposed".into())
        );
        assert_eq!(line["body"], "It would be good");
        assert_eq!(line["deps"].as_array().unwrap().len(), 1, "what they can see stays: {line}");
        for hidden in ["notes", "comments", "assignee"] {
            assert!(line.get(hidden).is_none(), "{hidden}: {line}");
        }
        assert!(!diff.contains("rivate") && !diff.contains(&private) && !diff.contains("my own"), "{diff}");
        let here = project.shown(mine, &id);
        assert_eq!((&here["visibility"], &here["notes"]), (&"proposed".into(), &"my own notes".into()));
        assert_eq!(here["deps"].as_array().unwrap().len(), 2, "dependencies are intact here");

        // It lands, waits for its keeper, is accepted, and our copy follows.
        project.merge(&id);
        assert_eq!(project.sync()[0]["news"], "landed", "tree {tree}");
        let status = home.toft(keeper, &["status"]).ok();
        assert!(status.contains("Ana proposes: Dark mode"), "{status}");
        let offered = home.toft(keeper, &["ready", "-q"]).ok();
        assert!(!offered.contains(&id), "nobody works on it before it is decided");
        home.toft(keeper, &["accept", &id]).ok();
        home.toft(keeper, &["edit", &id, "-p", "1", "-m", "welcome"]).ok();
        project.keeper_shares();
        let came = project.sync();
        assert_eq!((&came[0]["news"], &came[0]["issue"]), (&"accepted".into(), &id.as_str().into()), "{came:?}");
        let here = project.shown(mine, &id);
        assert_eq!(
            (&here["priority"], &here["notes"], here.get("visibility")),
            (&1.into(), &"my own notes".into(), None)
        );
        assert_eq!(here["comments"].as_array().unwrap().len(), 2, "theirs, and our private one");
        home.toft(mine, &["edit", &id, "-p", "4"]).fails(5);
        home.toft(mine, &["edit", &id, "--notes", "still mine"]).ok();
        home.toft(keeper, &["close", &id, "-m", "done"]).ok();
        project.keeper_shares();
        assert_eq!(project.sync()[0]["news"], "changed");
        assert_eq!(project.shown(mine, &id)["status"], "closed");
        assert!(project.sync().is_empty(), "nothing new is nothing to tell");
        let rows = listed(home, mine);
        assert_eq!(rows[&id]["ledger"], "planning", "one resolver: one issue, its ledger named");
    }
}

#[test]
fn a_rejected_proposal_comes_back_with_the_reason() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, keeper, .. } = &project;
        let id = add(home, mine, &["Rewrite it"]);
        project.propose(&id);
        project.merge(&id);
        home.toft(mine, &["accept", &id]).fails(5);
        home.toft(keeper, &["propose", "--withdraw", &id]).fails(5);
        home.toft(keeper, &["close", &id, "-m", "not now"]).ok();
        home.toft(keeper, &["accept", &id]).fails(5);
        project.keeper_shares();
        let came = project.sync();
        assert_eq!((&came[0]["news"], &came[0]["why"]), (&"rejected".into(), &"Rejected: not now".into()), "{came:?}");
        let here = project.shown(mine, &id);
        assert_eq!((&here["visibility"], &here["status"]), (&"local".into(), &"open".into()));
        assert!(here["comments"][0]["text"].as_str().unwrap().contains("not now"));
        home.toft(mine, &["edit", &id, "-p", "0"]).ok();
        assert!(!listed(home, keeper).contains_key(&id));
    }
}

#[test]
fn a_proposal_that_is_withdrawn_leaves_no_trace() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, fork, .. } = &project;
        let id = add(home, mine, &["A moment's thought"]);
        let before = users(mine);
        let args: &[&str] = if tree { &["propose", &id] } else { &["propose", &id, "--push", "origin"] };
        home.toft(mine, args).ok();
        assert_eq!(users(mine) != before, tree, "a branch of a proposal is in the ledger's repository");
        home.toft(mine, &["propose", &id]).ok();
        home.toft(mine, &["propose", "--withdraw", &id]).ok();
        let after = users(mine);
        let differ: Vec<_> = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).collect();
        assert!(differ.is_empty(), "tree {tree}: {differ:?}");
        assert_eq!(home.run(fork, "git", &["branch", "--list", "toft-propose/*"]), "");
        assert_eq!(project.shown(mine, &id)["visibility"], "local");
        home.toft(mine, &["propose", "--withdraw", &id]).fails(5);
    }
}

/// A branch that was closed without being merged: the pull request is gone, and nobody had to ask a forge.
#[test]
fn a_pull_request_that_was_closed_gives_the_issue_back() {
    let project = Project::new(false);
    let Project { home, mine, fork, .. } = &project;
    let id = add(home, mine, &["Closed"]);
    project.propose(&id);
    assert!(project.sync().is_empty(), "it waits");
    home.run(fork, "git", &["branch", "-qD", &format!("toft-propose/{id}")]);
    let came = project.sync();
    assert_eq!((came.len(), &came[0]["news"]), (1, &"rejected".into()), "{came:?}");
    assert_eq!(project.shown(mine, &id)["visibility"], "local");
}

#[test]
fn who_may_push_proposes_on_a_branch_and_it_is_seen_without_a_merge() {
    let project = Project::new(false);
    let Project { home, keeper, upstream, theirs, .. } = &project;
    home.run(home.path(), "git", &["clone", "-q", upstream.to_str().unwrap(), "member"]);
    let member = home.path().join("member");
    home.toft(&member, &["init", "--contributor"]).ok();
    home.toft(&member, &["sync"]).ok();
    let id = add(home, &member, &["From within"]);
    home.toft(&member, &["propose", &id, "--push", "origin"]).ok();
    // A branch that is called after one issue and changes another is taken for what it is called after.
    let work = home.path().join("hostile");
    home.run(home.path(), "git", &["clone", "-q", "-b", "toft-ledger", upstream.to_str().unwrap(), "hostile"]);
    let text = fs::read_to_string(work.join("issues.jsonl")).unwrap();
    fs::write(work.join("issues.jsonl"), text.replace("Upstream's own", "Taken over")).unwrap();
    home.run(&work, "git", &["commit", "-qam", "x"]);
    for name in [theirs.as_str(), "tf-other", "..evil"] {
        let branch = format!("HEAD:refs/heads/toft-propose/{name}");
        home.command(&work, "git", &["push", "-q", "origin", &branch]).output().unwrap();
    }
    home.toft(keeper, &["sync"]).ok();
    let rows = listed(home, keeper);
    assert_eq!(rows[theirs.as_str()]["title"], "Upstream's own", "a proposal changes nobody's issue");
    assert_eq!((rows.len(), &rows[&id]["visibility"]), (2, &"proposed".into()));
    home.toft(keeper, &["accept", &id]).ok();
    home.toft(keeper, &["sync"]).ok();
    let row = synced(home, &member, &[]).remove("branch").unwrap();
    assert_eq!(row["came"][0]["news"], "accepted", "{row}");
}

#[test]
fn the_guard_stops_a_hand_made_leak_and_lets_the_rest_pass() {
    let mut project = Project::new(true);
    project.home.toft_on_path();
    let Project { home, mine, fork, theirs, .. } = &project;
    let secret = add(home, mine, &["A private plan"]);
    let git = |args: &[&str]| home.run(mine, "git", args);
    // Somebody's hook is there already, and goes on being asked.
    let hooks = mine.join(".git/hooks");
    let asked = home.path().join("asked");
    fs::create_dir_all(&hooks).unwrap();
    let own = format!("#!/bin/sh\ncat > {}\n", asked.display());
    fs::write(hooks.join("pre-push"), &own).unwrap();
    fs::set_permissions(hooks.join("pre-push"), fs::Permissions::from_mode(0o755)).unwrap();
    home.toft(mine, &["setup", "guard", "-y"]).ok();
    assert!(home.toft(mine, &["setup", "guard", "-y"]).ok().contains("already"));
    let push = |branch: &str| {
        let output = home.command(mine, "git", &["push", "-q", "origin", branch]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    git(&["checkout", "-q", "-b", "work"]);
    fs::write(mine.join("code"), "fn main() {}\n").unwrap();
    git(&["add", "code"]);
    git(&["commit", "-qm", "code"]);
    assert!(push("work").0, "code leaves as always");
    assert!(fs::read_to_string(&asked).unwrap().contains("refs/heads/work"), "the hook that was there was asked");

    // A private line, copied by hand: into the ledger, into another file, laid out anew; even if a later commit hides it.
    let planning = home.toft(mine, &["ledger", "list", "--json"]).data()[0]["dir"].as_str().unwrap().to_owned();
    let line = fs::read_to_string(Path::new(&planning).join("issues.jsonl")).unwrap();
    for (file, text) in [
        (".toft/issues.jsonl", line.clone()),
        ("notes.json", line.clone()),
        ("plain.md", format!("see {secret} for more\n")),
        ("crlf.jsonl", line.replace('\n', "\r\n")),
    ] {
        git(&["checkout", "-q", "-B", "leak", "work"]);
        let path = mine.join(file);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, format!("{before}{text}")).unwrap();
        git(&["add", "."]);
        git(&["commit", "-qm", "oops"]);
        let said = home.toft(mine, &["doctor", "--outgoing"]);
        assert!(said.code == 4 && said.out.contains(&secret), "{file}: {said:?}");
        git(&["rm", "-q", "--cached", file]);
        git(&["commit", "-qm", "hidden"]);
        let (done, said) = push("leak");
        assert!(!done && said.contains(&secret), "{file}: {said}");
        assert_eq!(home.run(fork, "git", &["branch", "--list", "leak"]), "");
        git(&["checkout", "-qf", "work"]);
    }
    // Upstream's own issue is not a contributor's to change.
    git(&["checkout", "-q", "-B", "leak", "work"]);
    let file = mine.join(".toft/issues.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("Upstream's own", "Mine now")).unwrap();
    git(&["commit", "-qam", "mine now"]);
    let said = home.toft(mine, &["doctor", "--outgoing"]);
    assert!(said.code == 4 && said.out.contains(theirs.as_str()), "{said:?}");
    assert!(!push("leak").0);
    git(&["checkout", "-qf", "work"]);

    // What was proposed leaves; and where toft is broken or away, so does everything.
    let id = add(home, mine, &["For everyone"]);
    home.toft(mine, &["propose", &id]).ok();
    git(&["commit", "-qam", "propose"]);
    assert!(push("work").0);
    git(&["checkout", "-q", "-B", "leak", "work"]);
    fs::write(mine.join("notes.json"), &line).unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "oops"]);
    fs::write(mine.join(".git/toft/config.toml"), "this is no configuration").unwrap();
    assert!(push("leak").0, "our own errors are nobody else's");
    fs::remove_file(mine.join(".git/toft/config.toml")).unwrap();
    home.toft(mine, &["setup", "guard", "--remove", "-y"]).ok();
    assert_eq!(fs::read_to_string(hooks.join("pre-push")).unwrap(), own, "what was there is there again");
    assert!(!hooks.join("pre-push.before-toft").exists());
}
