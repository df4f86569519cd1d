//! What a contributor does stays with them: their tree and upstream's ledger are as they were after every command, what
//! they change about upstream's issues is laid over them in private, and proposals publish what was chosen.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::project::{Project, planning};

/// Everything that no command of a contributor may change: files, index, HEAD, config, hooks, refs, and the copy of
/// upstream's ledger.
fn untouchable(project: &Project) -> BTreeMap<String, Vec<u8>> {
    let Project { home, mine, .. } = project;
    let name = |path: &Path| path.display().to_string();
    let mut all: BTreeMap<String, Vec<u8>> =
        users(mine).into_iter().map(|(path, bytes)| (name(&path), bytes)).collect();
    if !project.tree {
        let ledger = snapshot(&mine.join(".git/toft/ledger"));
        all.extend(ledger.into_iter().map(|(path, bytes)| (name(&path), bytes)));
    }
    let refs = home.run(mine, "git", &["for-each-ref", "--format=%(refname) %(objectname)"]);
    let refs: Vec<&str> = refs.lines().filter(|line| !line.starts_with("refs/toft/")).collect();
    all.insert("refs".into(), refs.join("\n").into_bytes());
    all
}

fn assert_same(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>, what: &str) {
    let names = before.keys().chain(after.keys());
    let differ: Vec<&String> = names.filter(|name| before.get(*name) != after.get(*name)).collect();
    assert!(differ.is_empty(), "after {what}: {differ:?}");
}

/// Script 14, and every other command that writes.
#[test]
fn every_command_leaves_a_contributors_repository_as_it_was() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, theirs, .. } = &project;
        let theirs = theirs.as_str();
        let mine_first = add(home, mine, &["A plan of mine"]);
        let list = home.path().join("list.md");
        fs::write(&list, "- one\n- two\n").unwrap();
        let (list, backup) = (list.to_str().unwrap(), home.path().join("backup.db"));
        let team = home.path().join("team");
        fs::create_dir(&team).unwrap();
        let before = untouchable(&project);
        let done: &[&[&str]] = &[
            &["edit", theirs, "-p", "0", "--title", "My title", "-t", "bug", "-l", "private-label"],
            &["edit", theirs, "-d", "b", "--design", "d", "--acceptance", "a", "--notes", "n", "--owner", "me"],
            &["edit", theirs, "-m", "a private comment", "--needs", &mine_first],
            &["undo"],
            &["undo", "--redo"],
            &["edit", theirs, "--unneeds", &mine_first],
            &["claim", theirs, "--as", "private-agent"],
            &["save", "-m", "private progress", "--as", "private-agent"],
            &["finish", "release", "-m", "private words", "--as", "private-agent"],
            &["claim", theirs, "--as", "private-agent"],
            &["finish", "handoff", "-m", "private words", "--as", "private-agent"],
            &["edit", theirs, "--parent", &mine_first],
            &["edit", theirs, "--parent", "", "--defer", "3d"],
            &["edit", theirs, "--unlabel", "private-label"],
            &["close", theirs, "-m", "private reason"],
            &["reopen", theirs],
            &["delete", theirs, "-m", "not for me"],
            &["reopen", theirs],
            &["add", "A part of theirs", "--parent", theirs],
            &["add", "Found on the way", "--discovered-from", theirs],
            &["add", "Needs theirs", "--needs", theirs],
            &["gc", "--ledgers"],
            &["import", "markdown", list],
            &["export", "jsonl"],
            &["sync", "-n"],
            &["sync"],
            &["ready"],
            &["list", "--all"],
            &["status"],
            &["history"],
            &["list", "--graph"],
            &["prime"],
            &["show", theirs, "--why"],
            &["agent", "register", "helper"],
            &["agent", "send", "helper", "hello"],
            &["flow", "new", "Something else"],
            &["ledger", "add", "team", team.to_str().unwrap()],
            &["add", "For the team", "--ledger", "team"],
            &["ledger", "remove", "team"],
            &["backup", backup.to_str().unwrap()],
            &["gc", "--data"],
            &["init", "--contributor"],
            &["claim", theirs, "--as", "private-agent"],
            &["finish", "-m", "private summary", "--no-change", "why", "--as", "private-agent"],
            &["sync"],
            &["doctor", "--outgoing"],
        ];
        for args in done {
            home.toft(mine, args).ok();
            assert_same(&before, &untouchable(&project), &format!("{args:?}, tree {tree}"));
        }
        // What would have to write there is refused, before anything is written.
        let ledger = project.ledger();
        for args in [
            &["add", "In their plan", "--ledger", ledger][..],
            &["import", "markdown", list, "--ledger", ledger],
            &["move", &mine_first, "--to", ledger, "-y"],
            &["move", theirs, "--to", "planning", "-y"],
            &["accept", theirs],
            &["setup", "claude", "-y"],
        ] {
            let said = home.toft(mine, args);
            assert!([2, 5].contains(&said.code), "{said:?}");
            assert_same(&before, &untouchable(&project), &format!("{args:?}, tree {tree}"));
        }
        // Nothing of it is in anything that git could send, and all of it is in the private ledger.
        let private = fs::read_to_string(planning(home, mine).join("issues.jsonl")).unwrap();
        assert!(private.contains("private summary") && private.contains("a private comment"), "{private}");
        for line in private.lines().filter(|line| line.contains(theirs) && line.contains("\"overlay\"")) {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line.get("created").is_none(), "only what was changed: {line}");
        }
    }
}

/// What `show`, `list`, `ready` and `status` say of an issue together.
fn seen(project: &Project, id: &str) -> (String, bool) {
    let Project { home, mine, .. } = project;
    let shown = project.shown(mine, id);
    let status = shown["status"].as_str().unwrap().to_owned();
    let rows = listed(home, mine);
    assert_eq!(rows[id]["status"], shown["status"], "list and show agree");
    assert_eq!(rows.values().filter(|row| row["id"] == id).count(), 1, "it is listed once");
    let open = home.toft(mine, &["list", "issues", "--json"]).data();
    let listed = open.as_array().unwrap().iter().any(|row| row["id"] == id);
    assert_eq!(listed, status != "closed", "open issues are those that are not closed");
    let ready = home.toft(mine, &["ready", "-q"]).ok().contains(id);
    let why = home.toft(mine, &["show", id, "--why", "--json"]).data();
    assert_eq!(ready, why["not_ready"].as_array().unwrap().is_empty(), "ready and why agree: {why}");
    (status, ready)
}

#[test]
fn what_a_contributor_changes_about_upstreams_issue_is_laid_over_it() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, keeper, theirs, .. } = &project;
        assert_eq!(seen(&project, theirs), ("open".into(), true));
        assert!(project.shown(mine, theirs).get("overlay").is_none());
        home.toft(mine, &["claim", theirs, "--as", "me"]).ok();
        assert_eq!(seen(&project, theirs), ("in_progress".into(), false));
        let shown = project.shown(mine, theirs);
        assert_eq!(shown["overlay"]["ledger"], "planning");
        assert_eq!(shown["overlay"]["fields"], serde_json::json!(["assignee", "status"]));
        assert!(home.toft(mine, &["show", theirs]).ok().contains("your private changes"), "it is said");
        home.toft(mine, &["undo", "--as", "me"]).ok();
        assert_eq!(project.shown(mine, theirs)["status"], "open");
        home.toft(mine, &["flow", "abandon", shown["workflow"].as_str().unwrap()]).ok();
        assert_eq!(seen(&project, theirs), ("open".into(), true));
        assert!(project.shown(mine, theirs).get("overlay").is_none(), "it says what upstream says");

        // Needs and labels count as any.
        let first = add(home, mine, &["Needed first"]);
        home.toft(mine, &["edit", theirs, "--needs", &first, "-l", "mine", "--notes", "unmistakable"]).ok();
        assert_eq!(seen(&project, theirs), ("open".into(), false));
        assert!(home.toft(mine, &["list", "-l", "mine", "-q"]).ok().contains(theirs.as_str()));
        assert!(home.toft(mine, &["list", "--search", "unmistakable", "-q"]).ok().contains(theirs.as_str()));
        home.toft(mine, &["close", &first, "-m", "done"]).ok();
        assert_eq!(seen(&project, theirs), ("open".into(), true));

        // What they change shows through, beside what was changed here.
        home.toft(keeper, &["edit", theirs, "--title", "Their new title", "-p", "1"]).ok();
        project.keeper_shares();
        pull(&project);
        let shown = project.shown(mine, theirs);
        assert_eq!((&shown["title"], &shown["priority"]), (&"Their new title".into(), &1.into()));
        assert_eq!((&shown["notes"], &shown["labels"]), (&"unmistakable".into(), &serde_json::json!(["mine"])));

        // Finished here, and taken back.
        home.toft(mine, &["close", theirs, "-m", "done here"]).ok();
        assert_eq!(seen(&project, theirs), ("closed".into(), false));
        home.toft(mine, &["undo"]).ok();
        assert_eq!(seen(&project, theirs), ("open".into(), true));
        home.toft(mine, &["undo", "--redo"]).ok();
        assert_eq!(seen(&project, theirs), ("closed".into(), false));
        home.toft(mine, &["undo"]).ok();
        home.toft(mine, &["delete", theirs, "-m", "not mine"]).ok();
        assert!(!listed(home, mine).contains_key(theirs));
        home.toft(mine, &["reopen", theirs]).ok();
        assert_eq!(seen(&project, theirs), ("open".into(), true));

        // An index that is made anew sees the same.
        let before = listed(home, mine);
        for name in ["index", "toft.db", "toft.db-wal", "toft.db-shm"] {
            let path = mine.join(".git/toft").join(name);
            if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else if path.exists() {
                fs::remove_file(path).unwrap();
            }
        }
        home.toft(mine, &["init"]).ok();
        assert_eq!(listed(home, mine), before, "tree {tree}");

        // What upstream closes is closed, even while an agent here works on it, and cannot be reopened from here.
        home.toft(mine, &["claim", theirs, "--as", "me"]).ok();
        home.toft(keeper, &["close", theirs, "-m", "fixed upstream"]).ok();
        project.keeper_shares();
        home.toft(mine, &["edit", theirs, "-m", "still on it"]).ok();
        pull(&project);
        assert_eq!(project.shown(mine, theirs)["status"], "closed");
        assert_eq!(project.shown(mine, theirs)["closed"]["reason"], "fixed upstream");
        home.toft(mine, &["finish", "-m", "me too", "--no-change", "x", "--as", "me"]).ok();
        assert_eq!(project.shown(mine, theirs)["closed"]["reason"], "fixed upstream");
        home.toft(mine, &["reopen", theirs]).refuses(5, "closed upstream");
        home.toft(mine, &["edit", theirs, "--notes", "a note stays mine"]).ok();
        // And theirs alone, when they open it again.
        home.toft(keeper, &["reopen", theirs]).ok();
        project.keeper_shares();
        pull(&project);
        assert_eq!(project.shown(mine, theirs)["status"], "open");
        assert_eq!(project.shown(mine, theirs)["notes"], "a note stays mine");
        assert!(!project.shown(keeper, theirs).to_string().contains("stays mine"));
    }
}

/// Upstream's newest state is here.
fn pull(project: &Project) {
    let Project { home, mine, .. } = project;
    if project.tree {
        home.run(mine, "git", &["pull", "-q", "upstream", "main"]);
    }
    project.sync();
}

#[test]
fn clones_of_a_contributor_share_what_is_laid_over() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, theirs, fork, upstream, .. } = &project;
        home.run(home.path(), "git", &["clone", "-q", fork.to_str().unwrap(), "again"]);
        let again = home.path().join("again");
        home.run(&again, "git", &["remote", "add", "upstream", upstream.to_str().unwrap()]);
        home.toft(&again, &["init", "--contributor"]).ok();
        home.toft(&again, &["sync"]).ok();
        home.toft(mine, &["claim", theirs, "--as", "me"]).ok();
        let shown = project.shown(&again, theirs);
        assert_eq!((&shown["status"], &shown["assignee"]), (&"in_progress".into(), &"Ana".into()), "tree {tree}");
        home.toft(mine, &["finish", "-m", "done", "--no-change", "x", "--as", "me"]).ok();
        assert_eq!(project.shown(&again, theirs)["status"], "closed");
        // A branch of the project without that issue has nothing to lay it over.
        if tree {
            let file = again.join(".toft/issues.jsonl");
            let text = fs::read_to_string(&file).unwrap();
            fs::write(&file, "").unwrap();
            assert!(!listed(home, &again).contains_key(theirs));
            home.toft(&again, &["show", theirs]).fails(3);
            fs::write(&file, text).unwrap();
            assert_eq!(project.shown(&again, theirs)["status"], "closed");
        }
        // A clone that becomes a maintainer's goes on from what it shows, and writes to the repository's own ledger.
        home.toft(&again, &["init", "--maintainer"]).ok();
        assert_eq!(project.shown(&again, theirs)["status"], "closed");
        home.toft(&again, &["reopen", theirs]).ok();
        assert_eq!(project.shown(&again, theirs)["status"], "open");
        home.toft(&again, &["init", "--contributor"]).ok();
        // Where the plan is no longer seen, the issue is what upstream says.
        home.toft(&again, &["ledger", "remove", "planning"]).ok();
        assert_eq!(project.shown(&again, theirs)["status"], "open");
        home.toft(&again, &["edit", theirs, "-p", "0"]).refuses(2, "toft init --contributor");
    }
}

#[test]
fn a_workspace_of_a_contributor_has_no_change_in_its_tree() {
    let project = Project::new(true);
    let Project { home, mine, theirs, .. } = &project;
    home.toft(mine, &["claim", theirs, "--ws", "--as", "me"]).ok();
    let dir = home.toft(mine, &["ws", "path", theirs]).ok();
    let dir = Path::new(dir.trim());
    home.toft(dir, &["save", "-m", "half way", "--as", "me"]).ok();
    home.toft(dir, &["finish", "-m", "done", "--no-change", "x", "--as", "me"]).ok();
    assert_eq!(home.run(dir, "git", &["status", "--short"]), "");
    assert_eq!(home.run(mine, "git", &["status", "--short"]), "");
    assert_eq!(project.shown(mine, theirs)["status"], "closed", "it is seen from everywhere");
}

/// Scripts 12 and 13: what of a private issue is published, with private things in every field.
#[test]
fn a_proposal_publishes_what_was_chosen_and_asks_about_what_is_private() {
    for tree in [true, false] {
        let project = Project::new(tree);
        let Project { home, mine, keeper, theirs, .. } = &project;
        home.toft(keeper, &["edit", theirs, "-l", "ui"]).ok();
        project.keeper_shares();
        pull(&project);
        let private = add(home, mine, &["Acquire Acme quietly"]);
        let body = format!("see {private}; we acquire acme quietly. Log in {}/secret/dir", home.path().display());
        let args = [
            "Dark mode",
            "-d",
            &body,
            "--design",
            "DESIGN",
            "--acceptance",
            "ACC",
            "--notes",
            "PRIVNOTES",
            "--owner",
            "PRIVOWNER",
            "-l",
            "ui",
            "-l",
            "client-acme",
            "--related",
            &private,
            "--parent",
            &private,
        ];
        let id = add(home, mine, &args);
        home.toft(mine, &["edit", &id, "-m", "PRIVCOMMENT"]).ok();
        home.toft(mine, &["claim", &id, "--as", "PRIVAGENT"]).ok();
        home.toft(mine, &["finish", "-m", "PRIVFINISH", "--no-change", "PRIVWHY", "--as", "PRIVAGENT"]).ok();
        home.toft(mine, &["edit", &id, "-m", "as an agent", "--as", "PRIVAGENT"]).ok();
        let before = untouchable(&project);
        let push: &[&str] = if tree { &[] } else { &["--push", "origin"] };
        let propose = |more: &[&str]| home.toft(mine, &[&["propose", &id][..], push, more].concat());
        let said = propose(&[]);
        assert_eq!(said.code, 4, "{said:?}");
        for found in [format!("names {private}"), "title of".into(), "path of this machine".into()] {
            assert!(said.out.contains(&found), "{found}: {said:?}");
        }
        assert_same(&before, &untouchable(&project), "a proposal that was refused");
        assert_eq!(project.shown(mine, &id)["visibility"], "local");
        // Each finding is allowed by itself; the ids stay the same.
        let ids = propose(&["-q"]).out;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        assert_eq!(ids.len(), 3, "{ids:?}");
        let said = propose(&["--allow", ids[0], "--allow", ids[1]]);
        assert!(said.code == 4 && said.out.contains(ids[2]) && !said.out.contains(ids[0]), "{said:?}");
        propose(&["--without", "body"]).says_all(&["client-acme", "--with labels"]);
        let published = || match tree {
            true => fs::read_to_string(mine.join(".toft/issues.jsonl")).unwrap(),
            false => home.run(&project.fork, "git", &["show", &format!("toft-propose/{id}:issues.jsonl")]),
        };
        let line = |text: String| text.lines().find(|line| line.contains("Dark mode")).unwrap().to_owned();
        let text = line(published());
        for hidden in ["PRIV", "client-acme", "secret/dir", "cme", private.as_str()] {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
        let issue: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&issue["design"], &issue["labels"]), (&"DESIGN".into(), &serde_json::json!(["ui"])));
        assert!(issue.get("body").is_none() && issue["closed"].get("reason").is_none(), "{text}");
        // More, when that is chosen.
        let all = ids.join(",");
        propose(&["--with", "notes,labels,comments", "--allow", &all]).ok();
        let text = line(published());
        for chosen in ["PRIVNOTES", "client-acme", "PRIVCOMMENT", "secret/dir"] {
            assert!(text.contains(chosen), "{chosen}: {text}");
        }
        assert!(!text.contains("PRIVOWNER") && !text.contains("PRIVFINISH"), "{text}");
        propose(&["--with", "passwords"]).fails(2);
        propose(&["--without", "title"]).fails(2);

        // A secret is looked for in proposals, too.
        let key = add(home, mine, &["With a key", "-d", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"]);
        let said = home.toft(mine, &["propose", &key, "--target", "upstream"]);
        assert!(said.code == 4 && said.out.contains("secret") && !said.out.contains("ghp_"), "{said:?}");
        // One that is allowed is allowed; another in its place is asked about again.
        let finding = home.toft(mine, &["propose", &key, "-q"]).out.trim().to_owned();
        home.toft(mine, &["edit", &key, "-d", "ghp_9876543210zyxwvutsrqponmlkjihgfedcba"]).ok();
        home.toft(mine, &["propose", &key, "--allow", &finding]).fails(4);
        home.toft(mine, &["edit", &key, "-d", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"]).ok();
        home.toft(mine, &["propose", &key]).ok();
        // Upstream is another name for the repository's own ledger; what is proposed together may name each other.
        let one = add(home, mine, &["One of two things"]);
        let two = add(home, mine, &["Two", "-d", &format!("after {one}")]);
        home.toft(mine, &["propose", &two, "--target", "upstream"]).fails(4);
        home.toft(mine, &["propose", &one, &two, "--target", "upstream"]).ok();
    }
}

/// Script 43.
#[test]
fn branches_of_proposals_go_when_they_are_decided() {
    let project = Project::new(false);
    let Project { home, keeper, upstream, .. } = &project;
    home.run(home.path(), "git", &["clone", "-q", upstream.to_str().unwrap(), "member"]);
    let member = home.path().join("member");
    home.toft(&member, &["init", "--contributor"]).ok();
    home.toft(&member, &["sync"]).ok();
    let ids: Vec<String> = (0..6).map(|n| add(home, &member, &[&format!("Proposal number {n}")])).collect();
    for id in &ids {
        home.toft(&member, &["propose", id, "--push", "origin"]).ok();
    }
    let (own, all) = (member.join(".git/toft/ledger.git"), home.run(&member, "git", &["for-each-ref"]));
    let branches = |repo: &Path| {
        let listed = home.run(repo, "git", &["for-each-ref", "--format=%(refname)", "refs/heads/toft-propose"]);
        listed.lines().map(|name| name.trim_start_matches("refs/heads/toft-propose/").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((branches(&own).len(), branches(upstream).len()), (6, 6));
    // Withdrawn; accepted; rejected; waiting; changed by another user.
    let [gone, taken, refused, waits, changed, other_taken] = &ids[..] else { panic!() };
    home.toft(&member, &["propose", "--withdraw", gone]).ok();
    assert!(!branches(&own).contains(gone) && !branches(upstream).contains(gone));
    home.run(
        home.path(),
        "git",
        &["clone", "-q", "-b", &format!("toft-propose/{changed}"), upstream.to_str().unwrap(), "other"],
    );
    let other = home.path().join("other");
    home.run(&other, "git", &["commit", "-q", "--allow-empty", "-m", "more"]);
    home.run(&other, "git", &["push", "-q", "origin", &format!("HEAD:toft-propose/{changed}")]);
    home.toft(keeper, &["sync"]).ok();
    for id in [taken, changed, other_taken] {
        home.toft(keeper, &["accept", id]).ok();
    }
    home.toft(keeper, &["close", refused, "-m", "no"]).ok();
    home.toft(keeper, &["sync"]).ok();
    let row = synced(home, &member, &[]).remove("branch").unwrap();
    assert_eq!(row["came"].as_array().unwrap().len(), 4 + 1, "{row}");
    assert_eq!(branches(&own), std::slice::from_ref(waits));
    let mut left = vec![waits.clone(), changed.clone()];
    left.sort();
    assert_eq!(branches(upstream), left, "one waits, one is not ours any more");
    assert_eq!(home.run(&member, "git", &["for-each-ref"]), all, "the member's repository knows nothing of it");
    // A branch of that name that toft knows nothing of is not toft's.
    home.run(&member, "git", &["branch", "toft-propose/tf-unknown", "main"]);
    home.toft(&member, &["sync"]).ok();
    assert!(branches(&member).contains(&"tf-unknown".to_owned()));
}
