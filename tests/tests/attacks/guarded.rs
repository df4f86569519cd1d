//! The guard before a contributor's pushes, and who can read their plans.

#![cfg(unix)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use toft_stories::prelude::*;
use toft_stories::project::{Project, planning};

#[test]
fn init_as_a_contributor_guards_every_push() {
    let home = Home::new();
    let hook = |repo: &Path| repo.join(".git/hooks/pre-push");
    let plain = home.git("plain");
    home.toft(&plain, &["init", "--contributor"]).says("checks every push");
    let text = fs::read_to_string(hook(&plain)).unwrap();
    assert!(text.contains("toft guard") && fs::metadata(hook(&plain)).unwrap().mode() & 0o111 != 0);
    home.toft(&plain, &["init", "--contributor"]).ok();
    assert_eq!(fs::read_to_string(hook(&plain)).unwrap(), text, "once is enough");
    assert!(home.toft(&plain, &["doctor"]).out.contains("checks every push"));

    let without = home.git("without");
    let said = home.toft(&without, &["init", "--contributor", "--no-guard"]).ok();
    assert!(said.contains("Pushes are not checked") && !hook(&without).exists(), "{said}");
    let said = home.toft(&without, &["doctor"]).out;
    assert!(said.contains("Pushes are not checked"), "{said}");

    let own = home.git("own");
    fs::create_dir_all(own.join(".git/hooks")).unwrap();
    fs::write(hook(&own), "#!/bin/sh\nexit 0\n").unwrap();
    home.toft(&own, &["init", "--contributor"]).says_all(&["is yours and was not changed", "toft setup guard"]);
    assert_eq!(fs::read_to_string(hook(&own)).unwrap(), "#!/bin/sh\nexit 0\n");

    let elsewhere = home.git("elsewhere");
    home.run(&elsewhere, "git", &["config", "core.hooksPath", ".githooks"]);
    let before = users(&elsewhere);
    home.toft(&elsewhere, &["init", "--contributor"]).says("core.hooksPath");
    assert_eq!(users(&elsewhere), before, "hooks in the tree are the project's");

    let jj = home.path().join("jj");
    fs::create_dir(&jj).unwrap();
    home.run(&jj, "jj", &["git", "init", "--colocate"]);
    home.toft(&jj, &["init", "--contributor"]).says_all(&["jj does not run git hooks", "toft doctor --outgoing"]);
    let hg = home.path().join("hg");
    fs::create_dir(&hg).unwrap();
    home.run(&hg, "hg", &["init"]);
    home.toft(&hg, &["init", "--contributor"]).says_all(&["hg does not run git hooks", "toft doctor --outgoing"]);
}

/// Script 40. Retyped titles and texts, and encoded ones, are documented as not recognised.
#[test]
fn the_guard_withstands_what_was_tried_against_it() {
    let mut project = Project::new(false);
    project.home.toft_on_path();
    let Project { home, mine, fork, theirs, .. } = &project;
    home.toft(mine, &["setup", "guard", "-y"]).ok();
    let private = add(home, mine, &["Acquire Acme", "-d", "secret words"]);
    let ledger = planning(home, mine).join("issues.jsonl");
    let line = fs::read_to_string(&ledger).unwrap();
    home.toft(mine, &["edit", theirs, "--notes", "private notes"]).ok();
    let overlay = fs::read_to_string(&ledger).unwrap().replace(&line, "");
    let git = |args: &[&str]| home.run(mine, "git", args);
    let tried = std::cell::Cell::new(0);
    let new = || {
        tried.set(tried.get() + 1);
        let name = format!("try{}", tried.get());
        git(&["checkout", "-q", "-b", &name, "main"]);
        name
    };
    let stopped = |what: &str, name: &str| {
        let output = home.command(mine, "git", &["push", "-q", "origin", name]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{what} left: {said}");
        said
    };
    let commit = |file: &str, text: &str| {
        fs::write(mine.join(file), text).unwrap();
        git(&["add", file]);
        git(&["commit", "-qm", "x"]);
    };
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<Value>(line.trim()).unwrap()).unwrap();
    for (what, text) in [
        ("a raw line", line.clone()),
        ("a pretty one", pretty.clone()),
        ("one in a binary file", format!("\0\0{line}")),
        ("one with other keys", line.replace("\"id\"", "\"ID\"").replace("\"title\"", "\"name\"")),
        ("one with another id", line.replace(&private, "tf-other")),
        ("a pretty one with another id", pretty.replace(&private, "tf-other")),
        ("what is laid over", overlay.clone()),
        ("an id within a longer word", format!("topic-{private}-notes")),
    ] {
        let name = new();
        commit("a.jsonl", &text);
        stopped(what, &name);
        git(&["rm", "-q", "a.jsonl"]);
        git(&["commit", "-qm", "removed"]);
        stopped(&format!("{what}, removed again"), &name);
    }
    let name = new();
    git(&["commit", "-q", "--allow-empty", "-m", &format!("fixes {private}")]);
    stopped("an id in a message", &name);
    stopped("an id in a message, named by words", &format!("HEAD^{{/fixes {private}}}:refs/heads/words"));
    // The name of a branch is bytes.
    let latin = OsStr::from_bytes(b"HEAD:refs/heads/caf\xe9");
    let output = home.command(mine, "git", &["push", "-q", "origin"]).arg(latin).output().unwrap();
    assert!(!output.status.success(), "an id in a message left under a name that is not UTF-8");
    let name = new();
    git(&["tag", "-a", "v1", "-m", &format!("see {private}")]);
    stopped("an id in a tag's message", "v1");
    git(&["tag", "-a", "v2", "-m", "a tag of a tag", "v1"]);
    stopped("an id in the message of a tag of a tag", "v2");
    let key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    git(&["tag", "-a", "v3", "-m", key]);
    stopped("a secret in a tag's message", "v3");
    let topic = format!("topic-{private}");
    git(&["branch", &topic]);
    stopped("an id in a branch's name", &topic);
    git(&["notes", "add", "-m", &format!("see {private}")]);
    stopped("an id in a note", "refs/notes/commits");
    drop(name);
    let side = new();
    commit("a.jsonl", &line);
    new();
    git(&["commit", "-q", "--allow-empty", "-m", "y"]);
    git(&["merge", "-q", "--no-edit", &side]);
    stopped("one through a merge", &format!("try{}", tried.get()));
    let one = new();
    git(&["commit", "-q", "--allow-empty", "-m", "z"]);
    let two = new();
    git(&["commit", "-q", "--allow-empty", "-m", "y"]);
    git(&["merge", "-q", "--no-commit", &one]);
    commit("evil.jsonl", &line);
    stopped("one that only a merge has", &two);
    assert_eq!(home.run(fork, "git", &["branch", "--list", "try*", "topic*"]), "");
    assert_eq!(home.run(fork, "git", &["tag"]), "");

    // What the user allowed may leave; a secret only by its own name.
    let name = new();
    git(&["commit", "-q", "--allow-empty", "-m", &format!("fixes {private}")]);
    home.toft(mine, &["doctor", "--outgoing"]).fails(4);
    home.toft(mine, &["doctor", "--outgoing", "--yes"]).ok();
    git(&["push", "-q", "origin", &name]);
    let name = new();
    let open = line.replace(&private, "tf-0000").replace("\"local\"", "\"proposed\"").replace("secret words", key);
    commit("b.jsonl", &open);
    home.toft(mine, &["doctor", "--outgoing", "--yes"]).fails(4);
    let found = home.toft(mine, &["doctor", "--outgoing", "--json"]);
    let found: Value = serde_json::from_str(found.out.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {found:?}"));
    let id = found["data"]["doubts"][0]["id"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned();
    home.toft(mine, &["doctor", "--outgoing", "--allow", &id]).ok();
    git(&["push", "-q", "origin", &name]);
}

/// Seed 003: nobody else on the machine reads private plans.
#[test]
fn private_plans_are_readable_by_their_owner_only() {
    let (home, project) = Home::with(|home| home.git("project"));
    let own = home.path().join("plans");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    home.run(&own, "git", &["init", "-q"]);
    for args in [&["init", "--contributor"][..], &["init", "--contributor", "--planning", own.to_str().unwrap()]] {
        home.toft(&project, args).ok();
        let id = add(&home, &project, &["A private plan"]);
        home.toft(&project, &["close", &id, "-m", "done"]).ok();
        home.toft(&project, &["gc", "--ledgers", "--archive-after", "0s"]).ok();
        home.toft(&project, &["sync"]).ok();
        add(&home, &project, &["Another"]);
        let dir = planning(&home, &project);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700, "{}", dir.display());
        for path in snapshot(&dir).into_keys() {
            assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
            assert_eq!(mode(path.parent().unwrap()), 0o700, "{}", path.display());
        }
    }
}
