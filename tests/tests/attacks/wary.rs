//! Sharing with people and repositories one does not know: nothing is executed, lost or taken along.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::share::branch;

/// Changes what the remote's ledger says, by hand.
fn by_hand(home: &Home, remote: &Path, change: impl Fn(Vec<u8>) -> Vec<u8>) {
    let dir = home.path().join("by-hand");
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    home.run(home.path(), "git", &["clone", "-q", "-b", "toft-ledger", remote.to_str().unwrap(), "by-hand"]);
    let file = dir.join("issues.jsonl");
    fs::write(&file, change(fs::read(&file).unwrap())).unwrap();
    home.run(&dir, "git", &["commit", "-qam", "by hand"]);
    home.run(&dir, "git", &["push", "-q", "origin", "toft-ledger"]);
}

#[test]
fn what_a_repository_names_is_not_run_when_ledgers_are_exchanged() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    add(&home, a, &["One"]);
    let ran = home.path().join("ran");
    let evil = format!("touch {}; git-upload-pack", ran.display());
    let git = |args: &[&str]| home.run(a, "git", args);
    for (key, value) in [
        ("remote.origin.uploadpack", evil.clone()),
        ("remote.origin.receivepack", evil.replace("upload", "receive")),
        ("core.sshCommand", evil.clone()),
        ("core.gitProxy", evil.clone()),
        ("credential.helper", format!("!{evil}")),
        ("core.hooksPath", home.path().join("hooks").display().to_string()),
    ] {
        git(&["config", key, &value]);
    }
    fs::create_dir(home.path().join("hooks")).unwrap();
    for hook in ["pre-push", "reference-transaction", "post-checkout"] {
        let path = home.path().join("hooks").join(hook);
        fs::write(&path, format!("#!/bin/sh\ntouch {}\n", ran.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(branch(&home, a)["how"], "synced");
    assert!(!ran.exists());
    for url in
        [format!("ext::sh -c touch% {}", ran.display()), "git://127.0.0.1:1/x".into(), "ssh://127.0.0.1:1/x".into()]
    {
        git(&["remote", "set-url", "origin", &url]);
        add(&home, a, &["More"]);
        home.toft(a, &["sync"]);
        assert!(!ran.exists(), "{url}");
    }
    // A remote whose name is an option; a branch that follows one.
    let config = fs::read_to_string(a.join(".git/config")).unwrap();
    let name = format!("--upload-pack=touch {};", ran.display());
    let there = remote.display();
    let hostile = config.replace("[remote \"origin\"]", &format!("[remote \"{name}\"]\n\turl = {there}\n[unused]"));
    fs::write(
        a.join(".git/config"),
        format!("{hostile}\n[branch \"main\"]\n\tremote = {name}\n\tmerge = refs/heads/main\n"),
    )
    .unwrap();
    home.toft(a, &["sync"]);
    home.toft(a, &["init", "--tree"]).ok();
    home.toft(a, &["sync"]);
    assert!(!ran.exists());
    // Jujutsu would run what the git repository behind it names; so it is not asked.
    let team = Vcs::JjColocated.clone(&home, &remote, "team");
    home.run(&team, "git", &["config", "remote.origin.uploadpack", &evil]);
    let repo = project_with(&home, "other", &team);
    add(&home, &repo, &["Two", "--ledger", "team"]);
    assert_eq!(synced(&home, &repo, &["team"])["team"]["how"], "synced");
    assert!(!ran.exists());
}

#[test]
fn a_file_with_an_evil_name_on_the_other_side_moves_nothing_here() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["keeper", "mine"]));
    add(&home, &clones[0], &["One"]);
    branch(&home, &clones[0]);
    let evil = home.path().join("evil");
    home.run(home.path(), "git", &["clone", "-q", "-b", "toft-ledger", remote.to_str().unwrap(), "evil"]);
    fs::create_dir(evil.join("archive")).unwrap();
    let name = "archive/a\ndata 0\n\ncommit HEAD\ncommitter evil <e@e> 0 +0000\ndata 4\nevil\nM 100644 inline z.jsonl";
    fs::write(evil.join(name), "x\n").unwrap();
    commit_all(&home, &evil, "evil");
    home.run(&evil, "git", &["push", "-q", "origin", "toft-ledger"]);
    let mine = &clones[1];
    home.toft(mine, &["init", "--contributor"]).ok();
    let id = add(&home, mine, &["Mine"]);
    let before = home.run(mine, "git", &["rev-parse", "main"]);
    home.toft(mine, &["sync"]).ok();
    home.toft(mine, &["propose", &id]).ok();
    assert_eq!(home.run(mine, "git", &["rev-parse", "main"]), before);
    branch(&home, &clones[0]);
    assert_eq!(home.run(&clones[0], "git", &["log", "--format=%s", "main"]).trim(), "first of first");
}

#[test]
fn bytes_that_nobody_understands_are_kept_and_told() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    add(&home, a, &["One"]);
    branch(&home, a);
    let theirs = "{\"id\":\"tf-theirs\",\"title\":\"only there\"}\n";
    let bad = |mut text: Vec<u8>| {
        text.extend(b"bad \0 line\n{\"id\":\"tf-odd\",\"title\":\"odd\",\"priority\":\"high\"}\n");
        text.extend(theirs.as_bytes());
        text
    };
    by_hand(&home, &remote, bad);
    let row = branch(&home, a);
    assert!(row["said"][0].as_str().unwrap().contains("kept 1 broken lines of theirs"), "{row}");
    assert!(listed(&home, a).contains_key("tf-theirs") && listed(&home, a).contains_key("tf-odd"));
    let doctor = home.toft(a, &["doctor"]).out;
    assert!(doctor.contains("issues.jsonl:") && doctor.contains("`priority` of tf-odd"), "{doctor}");
    // The same under Mercurial, whose output has bytes of its own between files.
    let remote = Vcs::Hg.remote(&home, "hg-remote");
    let (one, two) = (Vcs::Hg.clone(&home, &remote, "one"), Vcs::Hg.clone(&home, &remote, "two"));
    let repo = project_with(&home, "b", &one);
    add(&home, &repo, &["Two", "--ledger", "team"]);
    assert_eq!(synced(&home, &repo, &["team"])["team"]["how"], "synced");
    home.run(&two, "hg", &["pull", "-qu"]);
    fs::write(two.join("issues.jsonl"), bad(fs::read(two.join("issues.jsonl")).unwrap())).unwrap();
    home.run(&two, "hg", &["commit", "-qm", "by hand"]);
    home.run(&two, "hg", &["push", "-q"]);
    assert_eq!(synced(&home, &repo, &["team"])["team"]["how"], "synced");
    assert!(listed(&home, &repo).contains_key("tf-theirs"));
}

#[test]
fn a_merge_of_the_users_in_a_mercurial_ledger_is_left_alone() {
    let home = Home::new();
    let remote = Vcs::Hg.remote(&home, "remote");
    let (one, two) = (Vcs::Hg.clone(&home, &remote, "one"), Vcs::Hg.clone(&home, &remote, "two"));
    let repo = project_with(&home, "a", &one);
    let hg = |dir: &Path, args: &[&str]| home.run(dir, "hg", args);
    add(&home, &repo, &["One", "--ledger", "team"]);
    assert_eq!(synced(&home, &repo, &["team"])["team"]["how"], "synced");
    hg(&two, &["pull", "-qu"]);
    for (dir, text) in [(&one, "mine"), (&two, "theirs")] {
        fs::write(dir.join(text), text).unwrap();
        hg(dir, &["add", "-q", text]);
        hg(dir, &["commit", "-qm", text]);
    }
    hg(&two, &["push", "-q"]);
    hg(&one, &["pull", "-q"]);
    hg(&one, &["merge", "-q"]);
    fs::write(one.join("theirs"), "edited by hand").unwrap();
    home.toft(&repo, &["sync", "team"]);
    assert_eq!(fs::read_to_string(one.join("theirs")).unwrap(), "edited by hand");
    assert_eq!(hg(&one, &["parents", "-T", "x"]), "xx", "it is still a merge");
}

#[test]
fn what_is_written_while_a_sync_sends_goes_with_the_next() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    let hook = remote.join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let sends = home.path().join("sends");
    fs::write(&hook, format!("#!/bin/sh\necho x > {}\nsleep 1\n", sends.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    add(&home, a, &["One"]);
    let mut sync = home.start(a, &["sync"]);
    agents::appears(&sends);
    let late = add(&home, a, &["Two"]);
    assert!(sync.wait().unwrap().success());
    fs::remove_file(&hook).unwrap();
    branch(&home, a);
    assert!(home.run(&remote, "git", &["show", "toft-ledger:issues.jsonl"]).contains(&late));
    // A refusal that sounds like a lost race is none, and is not repeated for ever.
    fs::write(&hook, "#!/bin/sh\necho 'fetch first' >&2; exit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    add(&home, a, &["Three"]);
    let begun = Instant::now();
    assert_eq!(branch(&home, a)["how"], "protected");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_ledger_is_never_kept_where_it_would_be_published() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    fs::create_dir(a.join("plans")).unwrap();
    let before = users(a);
    for args in [
        &["init", "--contributor", "--planning", "plans"][..],
        &["init", "--contributor", "--planning", "."],
        &["ledger", "add", "phase", "plans"],
    ] {
        home.toft(a, args).fails(2);
    }
    assert_eq!(users(a), before);
    // A ledger behind a link is not in the tree it is linked from.
    let out = home.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("issues.jsonl"), "").unwrap();
    fs::create_dir(a.join("archive")).unwrap();
    fs::write(a.join("archive/data.jsonl"), "mine\n").unwrap();
    commit_all(&home, a, "data");
    std::os::unix::fs::symlink(&out, a.join(".toft")).unwrap();
    home.toft(a, &["sync", "--commit"]);
    assert_eq!(home.run(a, "git", &["log", "-1", "--format=%s"]).trim(), "data");
    assert_eq!(home.run(&remote, "git", &["branch", "--list", "toft-ledger"]), "");
}

/// One repository for all plans of one person: projects do not get into each other's way, on two machines.
#[test]
fn plans_for_several_projects_share_a_repository() {
    let home = Home::new();
    let plans = Vcs::Git.remote(&home, "plans.git");
    let make = |machine: &str| -> Vec<PathBuf> {
        let planning = Vcs::Git.clone(&home, &plans, &format!("{machine}-plans"));
        ["red", "blue"]
            .iter()
            .map(|project| {
                let origin = home.path().join(project);
                if !origin.exists() {
                    home.git(project);
                    fs::write(origin.join("which"), project).unwrap();
                    home.run(&origin, "git", &["add", "."]);
                    home.run(&origin, "git", &["commit", "-q", "--amend", "-m", project]);
                }
                let name = format!("{machine}-{project}");
                home.run(home.path(), "git", &["clone", "-q", origin.to_str().unwrap(), &name]);
                let repo = home.path().join(name);
                home.toft(&repo, &["init", "--contributor", "--planning", planning.to_str().unwrap()]).ok();
                repo
            })
            .collect()
    };
    let here = make("here");
    let (red, blue) = (add(&home, &here[0], &["For red"]), add(&home, &here[1], &["For blue"]));
    let planning = |repo: &Path| synced(&home, repo, &["planning"]).remove("planning").unwrap();
    for repo in &here {
        assert_eq!(planning(repo)["how"], "synced");
    }
    let planned = home.path().join("there-plans");
    home.run(home.path(), "git", &["clone", "-q", plans.to_str().unwrap(), planned.to_str().unwrap()]);
    let there: Vec<PathBuf> = ["red", "blue"]
        .iter()
        .map(|project| {
            // Whatever the clone is called, its plans are found.
            home.run(
                home.path(),
                "git",
                &["clone", "-q", home.path().join(project).to_str().unwrap(), &format!("x{project}")],
            );
            let repo = home.path().join(format!("x{project}"));
            home.toft(&repo, &["init", "--contributor", "--planning", planned.to_str().unwrap()]).ok();
            repo
        })
        .collect();
    for repo in &there {
        assert_eq!(planning(repo)["received"], 1);
    }
    assert!(listed(&home, &there[0]).contains_key(&red) && listed(&home, &there[1]).contains_key(&blue));
    // Blue changes on both machines and is not synced; red goes on.
    let (b1, b2) = (add(&home, &here[1], &["Blue here"]), add(&home, &there[1], &["Blue there"]));
    assert_eq!(planning(&there[1])["how"], "synced");
    let r1 = add(&home, &here[0], &["Red here"]);
    let row = planning(&here[0]);
    assert_eq!(row["how"], "synced", "{row}");
    for repo in [&here[1], &there[1], &there[0], &here[1]] {
        let row = planning(repo);
        assert_eq!(row["how"], "synced", "{row}");
    }
    for repo in [&here[1], &there[1]] {
        let rows = listed(&home, repo);
        assert!([&blue, &b1, &b2].iter().all(|id| rows.contains_key(*id)), "{rows:?}");
    }
    assert!(listed(&home, &there[0]).contains_key(&r1));
    // Both at once wait for each other.
    add(&home, &here[0], &["Red again"]);
    add(&home, &here[1], &["Blue again"]);
    let running: Vec<_> = here.iter().map(|repo| home.start(repo, &["sync", "planning"])).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    assert!(ledger(&here[0]).parent().is_some());
}

/// A fork, with what happens in forks: upstream's commits are merged and pushed on, and stay nobody's leak.
#[test]
fn the_guard_sees_through_disguises_and_lets_upstreams_own_pass() {
    let mut home = Home::new();
    home.toft_on_path();
    let (upstream, clones) = cloned(&home, &["keeper"]);
    let keeper = &clones[0];
    home.toft(keeper, &["init", "--tree"]).ok();
    add(&home, keeper, &["Upstream's"]);
    home.toft(keeper, &["sync", "--commit"]).ok();
    home.run(keeper, "git", &["push", "-q", "origin", "main"]);
    home.run(home.path(), "git", &["clone", "-q", "--bare", upstream.to_str().unwrap(), "fork.git"]);
    home.run(home.path(), "git", &["clone", "-q", "fork.git", "mine"]);
    let mine = home.path().join("mine");
    let git = |args: &[&str]| home.run(&mine, "git", args);
    git(&["remote", "add", "upstream", upstream.to_str().unwrap()]);
    home.toft(&mine, &["init", "--contributor"]).ok();
    home.toft(&mine, &["setup", "guard", "-y"]).ok();
    let secret = add(&home, &mine, &["Private"]);
    let planning = home.toft(&mine, &["ledger", "list", "--json"]).data()[0]["dir"].as_str().unwrap().to_owned();
    let line = fs::read_to_string(Path::new(&planning).join("issues.jsonl")).unwrap();
    let push = |args: &[&str]| {
        let mut all = vec!["push", "-q", "origin"];
        all.extend(args);
        home.command(&mine, "git", &all).output().unwrap().status.success()
    };
    add(&home, keeper, &["Another of upstream's"]);
    home.toft(keeper, &["sync", "--commit"]).ok();
    home.run(keeper, "git", &["push", "-q", "origin", "main"]);
    git(&["checkout", "-q", "-b", "feature"]);
    git(&["commit", "-q", "--allow-empty", "-m", "work"]);
    git(&["fetch", "-q", "upstream"]);
    git(&["merge", "-q", "--no-edit", "upstream/main"]);
    assert!(push(&["feature"]), "a merge of upstream's work");
    git(&["checkout", "-q", "main"]);
    git(&["merge", "-q", "--ff-only", "upstream/main"]);
    assert!(push(&["main"]), "upstream's own, to the fork");
    let leak = |file: &str, content: &[u8], message: &str| {
        git(&["checkout", "-q", "-B", "leak", "main"]);
        if !file.is_empty() {
            fs::write(mine.join(".gitattributes"), "*.jsonl -diff\n").unwrap();
            fs::write(mine.join(file), content).unwrap();
        }
        git(&["add", "."]);
        git(&["commit", "-q", "--allow-empty", "-m", message]);
    };
    leak("a.jsonl", line.as_bytes(), "not to be shown");
    assert!(!push(&["leak"]), "behind an attribute");
    assert!(!push(&["leak:toft"]), "under another name");
    leak("a.bin", &[b"\0\n", line.as_bytes(), b"\0"].concat(), "bytes");
    assert!(!push(&["leak"]), "among bytes");
    leak("", b"", &format!("see {secret}"));
    assert!(!push(&["leak"]), "in a message");
    // Somebody looked, and it is fine: the guard remembers.
    home.toft(&mine, &["doctor", "--outgoing", "--yes"]).ok();
    assert!(push(&["leak"]));
}

#[test]
fn proposals_follow_what_both_sides_do() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["keeper", "mine"]));
    let (keeper, mine) = (&clones[0], &clones[1]);
    add(&home, keeper, &["Upstream's"]);
    branch(&home, keeper);
    home.toft(mine, &["init", "--contributor"]).ok();
    home.toft(mine, &["sync"]).ok();
    // Several at once keep what ties them together.
    let whole = add(&home, mine, &["Whole", "-l", "client-acme"]);
    let part = add(&home, mine, &["Part", "--parent", &whole]);
    let after = add(&home, mine, &["After", "--needs", &part]);
    let said = home.toft(mine, &["propose", &whole, &part, &after, "--with", "labels", "--push"]).ok();
    assert!(!said.contains("left out"), "{said}");
    branch(&home, keeper);
    let rows = listed(&home, keeper);
    assert_eq!(
        (&rows[&part]["parent"], &rows[&after]["deps"][0]["on"]),
        (&whole.as_str().into(), &part.as_str().into())
    );
    // What is said better arrives while it waits; what is no longer said is taken back.
    home.toft(mine, &["edit", &whole, "--title", "The whole", "--unlabel", "client-acme"]).ok();
    home.toft(mine, &["propose", &whole]).ok();
    branch(&home, keeper);
    let row = listed(&home, keeper)[&whole].clone();
    assert_eq!((&row["title"], row.get("labels")), (&"The whole".into(), None), "{row}");
    // In their ledger it is theirs to decide, whether or not we heard of it.
    home.toft(mine, &["propose", "--withdraw", &whole]).fails(5);
    home.toft(keeper, &["accept", &whole, &part]).ok();
    branch(&home, keeper);
    branch(&home, mine);
    home.toft(mine, &["delete", &part]).fails(5);
    // Work on what was accepted is not undone by a sync that brings nothing.
    home.toft(mine, &["claim", &part]).ok();
    home.toft(mine, &["finish", "-m", "done", "--no-change", "nothing to change"]).ok();
    branch(&home, mine);
    assert_eq!(listed(&home, mine)[&part]["status"], "closed");
    home.toft(keeper, &["edit", &part, "-p", "0"]).ok();
    branch(&home, keeper);
    branch(&home, mine);
    let row = listed(&home, mine)[&part].clone();
    assert_eq!(
        (&row["status"], &row["priority"], &row["parent"]),
        (&"closed".into(), &0.into(), &whole.as_str().into())
    );
    // From a fork that nobody merged: its branch is enough.
    home.run(home.path(), "git", &["clone", "-q", "--bare", remote.to_str().unwrap(), "fork.git"]);
    home.run(mine, "git", &["remote", "add", "fork", home.path().join("fork.git").to_str().unwrap()]);
    let far = add(&home, mine, &["From afar"]);
    home.toft(mine, &["propose", &far, "--push", "fork"]).ok();
    home.toft(keeper, &["accept", &far, "--from", home.path().join("fork.git").to_str().unwrap()]).ok();
    branch(&home, keeper);
    assert_eq!(branch(&home, mine)["came"][0]["news"], "accepted");
    // Notes do not leave a private ledger by being moved.
    let noted = add(&home, mine, &["Noted", "--notes", "between us"]);
    home.toft(mine, &["move", &noted, "--to", "branch"]).fails(2);
    assert!(!fs::read_to_string(ledger(mine)).unwrap().contains("between us"));
}
