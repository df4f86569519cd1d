//! Sharing: clones under any version control that exchange ledgers, and never anything else.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::share::play_sapling;

/// One ledger, two clones of it, each under the same version control: whatever that is, everything arrives.
fn exchanges_under(vcs: Vcs) {
    let mut home = Home::new();
    play_sapling(&mut home);
    let remote = vcs.remote(&home, "remote");
    let (one, two) = (vcs.clone(&home, &remote, "one"), vcs.clone(&home, &remote, "two"));
    let (a, b) = (project_with(&home, "a", &one), project_with(&home, "b", &two));
    let same = |what: &str| {
        let read = |dir: &Path| fs::read_to_string(dir.join("issues.jsonl")).unwrap();
        assert_eq!(read(&one), read(&two), "{vcs:?}: {what}");
    };
    let sync = |repo: &Path| {
        let row = synced(&home, repo, &["team"]).remove("team").unwrap();
        assert_eq!(row["how"], "synced", "{vcs:?}: {row}");
        row
    };
    let first = add(&home, &a, &["First", "--ledger", "team"]);
    assert_eq!(sync(&a)["sent"], 1);
    assert_eq!(sync(&b)["received"], 1);
    same("the first arrives");
    assert_eq!(sync(&a)["received"], 0, "nothing new is nothing to do");

    // Both write, of the same issue too; nobody's word is lost.
    let second = add(&home, &a, &["Second", "--ledger", "team"]);
    home.toft(&a, &["edit", &first, "-m", "said by a"]).ok();
    let third = add(&home, &b, &["Third", "--ledger", "team"]);
    home.toft(&b, &["edit", &first, "-p", "0", "-m", "said by b"]).ok();
    sync(&a);
    sync(&b);
    sync(&a);
    same("both wrote");
    let rows = listed(&home, &a);
    assert_eq!(rows[&first]["priority"], 0);
    assert_eq!(rows[&first]["comments"].as_array().unwrap().len(), 2);
    assert!(rows.contains_key(&second) && rows.contains_key(&third));

    // A deletion beats an edit that did not know of it.
    home.toft(&a, &["delete", &second]).ok();
    home.toft(&b, &["edit", &second, "-p", "1"]).ok();
    sync(&b);
    sync(&a);
    sync(&b);
    same("one deleted what the other edited");
    assert!(!listed(&home, &b).contains_key(&second), "no resurrection");
    home.toft(&b, &["reopen", &second]).ok();
    assert_eq!(listed(&home, &b)[&second]["priority"], 1, "nothing of it was lost");
    home.toft(&b, &["delete", &second]).ok();
    sync(&b);
    sync(&a);

    // Other files of that repository come and stay as they are.
    fs::write(one.join("README"), "of one\n").unwrap();
    add(&home, &a, &["Fourth", "--ledger", "team"]);
    sync(&a);
    sync(&b);
    same("beside other files");
    assert_eq!(fs::read_to_string(one.join("README")).unwrap(), "of one\n");
    assert!(!two.join("README").exists(), "only the ledger's files are sent");
    home.toft(&a, &["doctor"]).ok();
}

#[test]
fn a_ledger_is_exchanged_under_git() {
    exchanges_under(Vcs::Git);
}

#[test]
#[ignore = "wide: Jujutsu, Mercurial, Sapling"]
fn a_ledger_is_exchanged_under_jujutsu() {
    exchanges_under(Vcs::Jj);
}

#[test]
#[ignore = "wide: Jujutsu, Mercurial, Sapling"]
fn a_ledger_is_exchanged_under_jujutsu_beside_git() {
    exchanges_under(Vcs::JjColocated);
}

#[test]
#[ignore = "wide: Jujutsu, Mercurial, Sapling"]
fn a_ledger_is_exchanged_under_mercurial() {
    exchanges_under(Vcs::Hg);
}

#[test]
#[ignore = "wide: Jujutsu, Mercurial, Sapling"]
fn a_ledger_is_exchanged_under_what_plays_sapling() {
    exchanges_under(Vcs::Sl);
}

fn how(home: &Home, repo: &Path) -> Value {
    synced(home, repo, &[]).remove("branch").unwrap()
}

#[test]
fn a_sync_touches_nothing_of_the_users() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let (a, b) = (&clones[0], &clones[1]);
    let git = |args: &[&str]| home.run(b, "git", args);
    add(&home, a, &["From the other side"]);
    how(&home, a);
    // Everything at once that somebody may be in the middle of.
    fs::write(b.join("kept"), "1\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    fs::write(b.join("kept"), "stashed\n").unwrap();
    git(&["stash", "-q"]);
    git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
    fs::write(b.join("kept"), "2\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "two"]);
    assert!(!home.command(b, "git", &["rebase", "-q", "main"]).output().unwrap().status.success());
    fs::write(b.join("staged"), "x\n").unwrap();
    git(&["add", "staged"]);
    fs::write(b.join("untracked"), "y\n").unwrap();
    git(&["worktree", "add", "-q", "--detach", home.path().join("linked").to_str().unwrap()]);
    let linked = home.path().join("linked");
    // Objects and refs of a ledger are in a repository of its own.
    let objects = || (snapshot(&b.join(".git/objects")), home.run(b, "git", &["for-each-ref"]));
    let (before, objects_before) = ((users(b), snapshot(&linked)), objects());
    let mine = add(&home, b, &["From here"]);
    let unchanged = |what: &str| {
        let after = (users(b), snapshot(&linked));
        let differ: Vec<_> = after.0.iter().filter(|(path, bytes)| before.0.get(*path) != Some(bytes)).collect();
        assert!(differ.is_empty() && before.0.len() == after.0.len(), "{what} changed {differ:?}");
        assert_eq!(before.1, after.1, "{what}");
        assert_eq!(objects(), objects_before, "{what}");
    };
    for args in [&["sync", "-n"][..], &["sync"], &["sync"], &["history", &mine], &["list", "--at", "toft-ledger"]] {
        home.toft(b, args).ok();
        unchanged(&format!("{args:?}"));
    }
    home.toft(&linked, &["sync"]).ok();
    unchanged("a sync in a linked worktree");
    home.toft(b, &["doctor", "--outgoing"]).ok();
    unchanged("the guard");
    assert_eq!(listed(&home, b).len(), 2);
    assert_eq!(home.run(b, "git", &["branch", "--list", "toft*"]), "");
}

/// Before it had a repository of its own, a ledger was a ref of the project's and the remote's branch `toft`.
#[test]
fn a_ledger_among_the_projects_objects_moves_once_and_so_does_its_branch() {
    let home = Home::new();
    let (remote, clones) = cloned(&home, &["a", "b"]);
    let (a, b) = (&clones[0], &clones[1]);
    let first = add(&home, a, &["First"]);
    how(&home, a);
    how(&home, b);
    for repo in [a, b] {
        home.run(repo, "git", &["fetch", "-q", ".git/toft/ledger.git", "+toft-ledger:refs/toft/ledger"]);
        home.run(repo, "git", &["update-ref", "refs/toft/remotes/origin/toft", "refs/toft/ledger"]);
        fs::remove_dir_all(repo.join(".git/toft/ledger.git")).unwrap();
    }
    home.run(&remote, "git", &["branch", "-m", "toft-ledger", "toft"]);
    let second = add(&home, a, &["Second"]);
    home.run(a, "git", &["config", "user.email", "ana@project.example"]);
    let sync = home.command(a, toft_bin(), &["sync"]).env_remove("GIT_COMMITTER_EMAIL").output().unwrap();
    let said = String::from_utf8(sync.stdout).unwrap();
    assert!(said.contains("moved to") && said.contains("`toft` of origin is `toft-ledger` now"), "{said}");
    assert_eq!(
        home.run(&remote, "git", &["branch", "--list", "toft*", "--format=%(refname:short)"]).trim(),
        "toft-ledger"
    );
    assert_eq!(home.run(a, "git", &["for-each-ref", "refs/toft"]), "");
    let history = home.run(&a.join(".git/toft/ledger.git"), "git", &["log", "--format=%s", "toft-ledger"]);
    assert_eq!(history.lines().count(), 2, "{history}");
    let by = home.run(&remote, "git", &["log", "-1", "--format=%ce", "toft-ledger"]);
    assert_eq!(by.trim(), "ana@project.example", "the project's own address counts");
    // Names of work can be pushed beside it.
    home.run(a, "git", &["push", "-q", "origin", "main:toft/work"]);
    assert!(!home.toft(a, &["sync"]).ok().contains("toft-ledger"), "once");
    let said = home.toft(b, &["sync"]).ok();
    assert!(said.contains("moved to") && !said.contains("of origin is"), "{said}");
    let rows = listed(&home, b);
    assert!(rows.contains_key(&first) && rows.contains_key(&second), "{rows:?}");
    // An earlier toft makes the branch again: it is read, and goes.
    home.run(home.path(), "git", &["clone", "-q", "-b", "toft-ledger", remote.to_str().unwrap(), "earlier"]);
    let earlier = home.path().join("earlier");
    append_issue(&earlier, "Written by an earlier toft");
    commit_all(&home, &earlier, "toft: an issue");
    home.run(&remote, "git", &["branch", "-D", "toft/work"]);
    home.run(&earlier, "git", &["push", "-q", "origin", "HEAD:refs/heads/toft"]);
    assert_eq!(how(&home, b)["received"], 1);
    assert_eq!(home.run(&remote, "git", &["branch", "--list", "toft"]), "");
    assert_eq!(how(&home, a)["received"], 1);
}

/// Appends an issue to the ledger in a directory, as an earlier toft or a hand would.
fn append_issue(dir: &Path, title: &str) {
    let path = dir.join("issues.jsonl");
    let mut text = fs::read_to_string(&path).unwrap_or_default();
    text.push_str(&format!("{{\"id\":\"tf-0000000000000001\",\"title\":\"{title}\"}}\n"));
    fs::write(path, text).unwrap();
}

/// An earlier toft committed a ledger in a repository of its own to the branch that was checked out.
#[test]
fn a_ledger_on_a_checked_out_branch_is_read_and_goes_on_as_toft_ledger() {
    let home = Home::new();
    let remote = Vcs::Git.remote(&home, "team.git");
    let (one, two) = (Vcs::Git.clone(&home, &remote, "one"), Vcs::Git.clone(&home, &remote, "two"));
    append_issue(&one, "Written by an earlier toft");
    commit_all(&home, &one, "toft: an issue");
    home.run(&one, "git", &["push", "-q", "origin", "main"]);
    let repo = project_with(&home, "project", &two);
    let team = || synced(&home, &repo, &["team"]).remove("team").unwrap();
    let id = add(&home, &repo, &["Mine", "--ledger", "team"]);
    let row = team();
    assert!(row["received"] == 1 && row["said"].to_string().contains("`main` is read"), "{row}");
    let rows = listed(&home, &repo);
    assert!(rows.len() == 2 && rows.contains_key(&id), "{rows:?}");
    let sent = home.run(&remote, "git", &["show", "toft-ledger:issues.jsonl"]);
    assert!(sent.contains(&id) && sent.contains("earlier toft"), "{sent}");
    let row = team();
    assert!(row["received"] == 0 && row["said"] == serde_json::json!([]), "{row}");
}

#[test]
fn each_thing_in_the_way_has_a_plain_outcome_and_nothing_is_lost() {
    let (mut home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let (a, b) = (clones[0].clone(), clones[1].clone());
    let first = add(&home, &a, &["First"]);
    // Offline: recorded here, sent the next time.
    home.run(&a, "git", &["remote", "set-url", "origin", "http://127.0.0.1:9/x.git"]);
    assert_eq!(how(&home, &a)["how"], "offline");
    assert_eq!(home.toft(&a, &["sync"]).code, 0, "offline is no error");
    home.run(&a, "git", &["remote", "set-url", "origin", remote.to_str().unwrap()]);
    assert_eq!((&how(&home, &a)["how"], how(&home, &b)["received"].as_u64()), (&"synced".into(), Some(1)));

    // Somebody does not take it.
    let hook = remote.join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nprintf 'not \\033[31mhere\\n' >&2; exit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    add(&home, &a, &["Second"]);
    let said = home.toft(&a, &["sync"]);
    assert!(
        said.code == 1 && said.out.contains("push rejected with origin") && !said.out.contains('\u{1b}'),
        "{said:?}"
    );
    fs::remove_file(&hook).unwrap();
    assert_eq!(how(&home, &a)["sent"], 1);

    // Somebody does not let us in.
    let ssh = home.path().join("ssh");
    fs::write(&ssh, "#!/bin/sh\necho 'ana@host: Permission denied (publickey).' >&2; exit 255\n").unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let url = format!("ssh://host{}", remote.display());
    home.run(&a, "git", &["remote", "set-url", "origin", &url]);
    home.set("GIT_SSH_COMMAND", ssh.to_str().unwrap());
    assert_eq!((how(&home, &a)["how"].clone(), home.toft(&a, &["sync"]).code), ("denied".into(), 1));
    // The same way, and the door is open: everything goes through a program that plays ssh.
    fs::write(&ssh, "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n").unwrap();
    add(&home, &a, &["Third"]);
    assert_eq!(how(&home, &a)["how"], "synced");

    // No remote at all; and no version control.
    home.run(&a, "git", &["remote", "remove", "origin"]);
    add(&home, &a, &["Fourth"]);
    assert_eq!(how(&home, &a)["how"], "recorded");
    assert_eq!(
        home.run(&a.join(".git/toft/ledger.git"), "git", &["show", "toft-ledger:issues.jsonl"]).lines().count(),
        4
    );
    let plain = home.path().join("plain");
    fs::create_dir(&plain).unwrap();
    home.toft(&a, &["ledger", "add", "plain", plain.to_str().unwrap()]).ok();
    add(&home, &a, &["Here", "--ledger", "plain"]);
    assert_eq!(synced(&home, &a, &["plain"])["plain"]["how"], "unversioned");
    home.toft(&a, &["ledger", "remove", "plain"]).ok();
    home.run(&a, "git", &["remote", "add", "origin", remote.to_str().unwrap()]);
    assert_eq!(how(&home, &a)["how"], "synced");

    // A history that was replaced takes nothing away from anybody.
    assert_eq!(how(&home, &b)["how"], "synced");
    let empty = home.run(&remote, "git", &["hash-object", "-t", "tree", "/dev/null"]);
    let orphan = home.run(&remote, "git", &["commit-tree", "-m", "wiped", empty.trim()]);
    home.run(&remote, "git", &["update-ref", "refs/heads/toft-ledger", orphan.trim()]);
    let row = how(&home, &b);
    assert_eq!((&row["how"], &row["rewritten"], &row["sent"]), (&"synced".into(), &true.into(), &4.into()), "{row}");
    home.run(&remote, "git", &["update-ref", "-d", "refs/heads/toft-ledger"]);
    assert_eq!(how(&home, &a)["sent"], 4, "a branch that was deleted is there again");

    // A shallow clone is a clone.
    let from = format!("file://{}", remote.display());
    home.run(home.path(), "git", &["clone", "-q", "--depth", "1", "--no-single-branch", &from, "shallow"]);
    let shallow = home.path().join("shallow");
    home.toft(&shallow, &["init"]).ok();
    home.toft(&shallow, &["sync"]).ok();
    add(&home, &shallow, &["Fifth"]);
    assert_eq!(how(&home, &shallow)["how"], "synced");
    how(&home, &a);
    let rows = listed(&home, &a);
    assert!(rows.len() == 5 && rows.contains_key(&first), "{rows:?}");
}

#[test]
fn a_long_issue_or_a_long_list_holds_nothing_back_and_a_secret_does() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    let many: String = (0..101).map(|n| format!("- item {n}\n")).collect();
    let list = home.path().join("list.md");
    fs::write(&list, many).unwrap();
    home.toft(a, &["import", "markdown", list.to_str().unwrap()]).ok();
    let said = home.toft(a, &["sync"]);
    assert!(said.code == 0 && said.out.contains("101 issues at once"), "{said:?}");
    assert_ne!(home.run(a, "git", &["ls-remote", "origin", "toft-ledger"]), "", "everything was sent");
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let id = add(&home, a, &["Rotate it", "-d", &format!("the old one is {token}")]);
    let said = home.toft(a, &["sync"]);
    assert!(said.code == 4 && said.out.contains("looks like a secret") && !said.out.contains(&token), "{said:?}");
    home.toft(a, &["edit", &id, "-d", "it is in the vault"]).ok();
    let long = add(&home, a, &["Long", "-d", &"long ".repeat(20_000)]);
    assert!(home.toft(a, &["sync"]).ok().contains("KiB long"));
    home.toft(a, &["edit", &long, "-m", "again"]).ok();
    assert!(home.toft(a, &["sync", "-y"]).ok().contains("1 out"));
}

/// In Mercurial the other files of a shared ledger's repository are merged as in any repository; what cannot be is left to
/// a person.
#[test]
fn other_files_are_merged_or_left_to_a_person() {
    let (home, vcs) = (Home::new(), Vcs::Hg);
    let remote = vcs.remote(&home, "remote");
    let (one, two) = (vcs.clone(&home, &remote, "one"), vcs.clone(&home, &remote, "two"));
    let (a, b) = (project_with(&home, "a", &one), project_with(&home, "b", &two));
    let commit = |dir: &Path, text: &str| {
        fs::write(dir.join("README"), text).unwrap();
        home.run(dir, "hg", &["add", "-q", "README"]);
        home.run(dir, "hg", &["commit", "-qm", "read me", "README"]);
    };
    let push = |dir: &Path| drop(home.run(dir, "hg", &["push", "-q"]));
    let team = |repo: &Path| synced(&home, repo, &["team"]).remove("team").unwrap();
    add(&home, &a, &["First", "--ledger", "team"]);
    team(&a);
    team(&b);
    // One side has another file: it comes along once its author sent it.
    commit(&one, "of one\n");
    add(&home, &a, &["Second", "--ledger", "team"]);
    assert_eq!(team(&a)["how"], "conflict", "a user's commit is theirs to push");
    push(&one);
    assert_eq!(team(&a)["how"], "synced");
    add(&home, &b, &["Third", "--ledger", "team"]);
    let row = team(&b);
    assert_eq!(row["how"], "synced", "{row}");
    assert_eq!(fs::read_to_string(two.join("README")).unwrap(), "of one\n");
    // Both have it, differently: nobody guesses, and both files stay as they are.
    team(&a);
    commit(&one, "one says so\n");
    push(&one);
    add(&home, &a, &["Fourth", "--ledger", "team"]);
    assert_eq!(team(&a)["how"], "synced");
    commit(&two, "two says so\n");
    let fifth = add(&home, &b, &["Fifth", "--ledger", "team"]);
    let row = team(&b);
    assert_eq!(row["how"], "conflict", "{row}");
    assert_eq!(fs::read_to_string(two.join("README")).unwrap(), "two says so\n");
    assert_eq!(listed(&home, &b).len(), 5, "what came in is here");
    assert_eq!(listed(&home, &b)[&fifth]["title"], "Fifth");
}

/// Proof 5: an issue that exists only on another branch is nobody's deletion.
#[test]
fn an_issue_on_another_branch_is_not_deleted_by_a_sync() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let (a, b) = (&clones[0], &clones[1]);
    let git = |repo: &Path, args: &[&str]| home.run(repo, "git", args);
    home.toft(a, &["init", "--tree"]).ok();
    let main = add(&home, a, &["On main"]);
    home.toft(a, &["sync", "--commit"]).ok();
    git(a, &["push", "-q", "origin", "main"]);
    git(a, &["checkout", "-q", "-b", "side"]);
    let side = add(&home, a, &["Only on the side"]);
    assert!(home.toft(a, &["sync", "--commit"]).ok().contains("committed"));
    assert_eq!(git(a, &["status", "--porcelain"]), "");
    assert_eq!(git(a, &["show", "--name-only", "--format=%s"]).trim(), "toft: issues\n\n.toft/issues.jsonl");
    assert_eq!(git(a, &["show", "main:.toft/.gitattributes"]).trim(), "*.jsonl merge=union");
    git(a, &["push", "-q", "origin", "side"]);
    git(a, &["checkout", "-q", "main"]);
    home.toft(a, &["sync", "--commit"]).ok();
    let tree = fs::read_to_string(a.join(".toft/issues.jsonl")).unwrap();
    assert!(tree.contains(&main) && !tree.contains(&side), "{tree}");
    git(a, &["push", "-q", "origin", "main"]);
    git(b, &["pull", "-q"]);
    let third = add(&home, b, &["From b"]);
    home.toft(b, &["sync", "--commit"]).ok();
    git(b, &["push", "-q", "origin", "main"]);
    // What the other side has comes into the file; committing is ours.
    let row = synced(&home, a, &[]).remove("tree").unwrap();
    assert_eq!((&row["how"], &row["received"]), (&"received".into(), &1.into()), "{row}");
    assert_eq!(git(a, &["status", "--porcelain"]).trim(), "M .toft/issues.jsonl");
    git(a, &["commit", "-qam", "theirs"]);
    // git may leave a conflict between lines: the reader merges both sides.
    home.command(a, "git", &["merge", "-q", "--no-edit", "side"]).output().unwrap();
    let rows = listed(&home, a);
    assert!([&main, &side, &third].iter().all(|id| rows.contains_key(*id)), "{rows:?}");
}

#[test]
fn a_sync_that_is_killed_anywhere_loses_nothing() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let mut dice = Dice::new(u64::from(std::process::id()));
    let mut wanted = BTreeSet::new();
    for round in 0..sized(30, 300) {
        let repo = &clones[round % 2];
        wanted.insert(add(&home, repo, &[&format!("Issue {round}")]));
        let mut sync = home.start(repo, &["sync"]);
        thread::sleep(Duration::from_millis(dice.below(60)));
        // It may have ended.
        let _ = sync.kill();
        sync.wait().unwrap();
    }
    for repo in [&clones[0], &clones[1], &clones[0]] {
        let row = how(&home, repo);
        assert_eq!(row["how"], "synced", "{row}");
    }
    for repo in &clones {
        let there: BTreeSet<String> = listed(&home, repo).into_keys().collect();
        assert_eq!(there, wanted);
        home.toft(repo, &["doctor"]).ok();
        home.run(repo, "git", &["fsck", "--no-dangling"]);
    }
    assert_eq!(fs::read(ledger(&clones[0])).unwrap(), fs::read(ledger(&clones[1])).unwrap());
}

#[test]
fn the_past_of_an_issue_is_what_version_control_remembers() {
    let mut home = Home::new();
    play_sapling(&mut home);
    for vcs in [Vcs::Git, Vcs::JjColocated, Vcs::Hg] {
        let name = format!("{vcs:?}").to_lowercase();
        let remote = vcs.remote(&home, &format!("{name}-remote"));
        let dir = vcs.clone(&home, &remote, &format!("{name}-ledger"));
        let repo = project_with(&home, &name, &dir);
        let id = add(&home, &repo, &["As it was", "--ledger", "team"]);
        home.toft(&repo, &["sync", "team"]).ok();
        let first = match vcs {
            Vcs::Hg => home.run(&dir, "hg", &["log", "-r", ".", "-T", "{node}"]),
            _ => home.run(&dir.join(".git/toft/ledger.git"), "git", &["rev-parse", "toft-ledger"]),
        };
        home.toft(&repo, &["edit", &id, "--title", "As it is", "-p", "0"]).ok();
        add(&home, &repo, &["Another", "--ledger", "team"]);
        home.toft(&repo, &["sync", "team"]).ok();
        let shown = home.toft(&repo, &["show", &id, "--at", first.trim(), "--json"]).data();
        assert_eq!((&shown["title"], &shown["priority"]), (&"As it was".into(), &2.into()), "{vcs:?}: {shown}");
        let then = home.toft(&repo, &["list", "--at", first.trim(), "--json"]).data();
        assert_eq!(then.as_array().unwrap().len(), 1, "{vcs:?}: the index is made of what was there then");
        assert_eq!(home.toft(&repo, &["export", "jsonl", "--at", first.trim()]).ok().lines().count(), 1);
        let log = home.toft(&repo, &["history", &id]).ok();
        let commits: Vec<&str> = log.lines().filter(|line| line.starts_with("commit ")).collect();
        assert!(commits.len() == 2 && commits[0].contains("title: As it is"), "{vcs:?}: {log}");
        assert!(commits[1].contains("created") && log.contains("issue.edited"), "{vcs:?}: {log}");
        assert_eq!(home.toft(&repo, &["list", "--at", "no-such-thing"]).code, 3);
        let now = home.toft(&repo, &["show", &id, "--json"]).data();
        assert_eq!(now["title"], "As it is");
        let left = fs::read_dir(repo.join(".git/toft/past")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{vcs:?}: nothing of it is left lying about");
    }
}

#[test]
fn ledgers_exchange_themselves_where_that_is_wanted() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let (a, b) = (&clones[0], &clones[1]);
    add(&home, a, &["Nobody asked"]);
    assert_eq!(home.run(&remote, "git", &["branch", "--list", "toft-ledger"]), "", "only where that is wanted");
    fs::write(a.join(".git/toft/config.toml"), "[sync]\nauto = \"1h\"\n").unwrap();
    let id = add(&home, a, &["By itself"]);
    how(&home, b);
    assert!(listed(&home, b).contains_key(&id));
    let later = add(&home, a, &["Within the hour"]);
    how(&home, b);
    assert!(!listed(&home, b).contains_key(&later), "not again before its time");
    // A runner takes up what other clones added, at its start and between tasks.
    let script = "git commit -q --allow-empty -m x";
    fs::write(b.join(".git/toft/config.toml"), "[sync]\nauto = \"0s\"\n").unwrap();
    home.toft(a, &["sync"]).ok();
    home.toft(b, &["run", "--until-idle", "--slots", "1", "--", "sh", "-c", script]).ok();
    assert_eq!(listed(&home, b)[&later]["status"], "closed");
    fs::write(b.join(".git/toft/config.toml"), "").unwrap();
    // A remote that is gone keeps nobody waiting, and is no error.
    fs::write(a.join(".git/toft/config.toml"), "[sync]\nauto = \"0s\"\n").unwrap();
    fs::rename(&remote, home.path().join("away")).unwrap();
    assert_eq!(home.toft(a, &["list"]).err, "");
}
