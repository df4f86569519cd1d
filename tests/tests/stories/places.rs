//! Where ledgers are sent to: branches and repositories of toft's own, from clones of every shape.

#![cfg(unix)]

use std::net::TcpListener;

use toft_stories::prelude::*;
use toft_stories::share::{another, branch, branches, published, team};

/// A server that says this to everybody; gives its port.
fn answering(status: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 4_096];
            let _ = client.read(&mut asked);
            let _ = write!(client, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    port
}

/// Script 19 and the end of 18: a branch called `toft-ledger` that holds code is neither read nor written.
#[test]
fn a_branch_that_is_no_ledger_is_refused_and_another_name_can_be_set() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let a = &clones[0];
    home.run(a, "git", &["checkout", "-q", "-b", "toft-ledger"]);
    fs::write(a.join("main.c"), "int main;\n").unwrap();
    home.run(a, "git", &["add", "main.c"]);
    home.run(a, "git", &["commit", "-qm", "my feature"]);
    home.run(a, "git", &["push", "-q", "origin", "toft-ledger"]);
    let code = home.run(&remote, "git", &["rev-parse", "toft-ledger"]);
    let b = &clones[1];
    let id = add(&home, b, &["One"]);
    for _ in 0..2 {
        let said = home.toft(b, &["sync"]);
        assert!(said.code == 1 && said.out.contains("[sync] branch"), "{said:?}");
        assert_eq!(home.run(&remote, "git", &["rev-parse", "toft-ledger"]), code);
    }
    fs::write(b.join(".git/toft/config.toml"), "[sync]\nbranch = \"issues/ledger\"\n").unwrap();
    assert_eq!(branch(&home, b)["how"], "synced");
    assert!(home.run(&remote, "git", &["show", "issues/ledger:issues.jsonl"]).contains(&id));
    assert_eq!(home.run(&remote, "git", &["rev-parse", "toft-ledger"]), code);
    fs::write(a.join(".git/toft/config.toml"), "[sync]\nbranch = \"issues/ledger\"\n").unwrap();
    assert_eq!(branch(&home, a)["received"], 1);
    fs::write(a.join(".git/toft/config.toml"), "[sync]\nbranch = \"--all\"\n").unwrap();
    home.toft(a, &["sync"]).fails(2);
    // A branch below that name is in the way of the name itself.
    let other = Vcs::Git.remote(&home, "other.git");
    home.run(b, "git", &["push", "-q", other.to_str().unwrap(), "main:main", "main:toft-ledger/x"]);
    let c = another(&home, &other, "c");
    add(&home, &c, &["One"]);
    let said = home.toft(&c, &["sync"]);
    assert!(said.code == 1 && said.out.contains("toft-ledger/x"), "{said:?}");
    // A ledger's branch that was replaced by code is not written to either.
    home.run(&remote, "git", &["update-ref", "refs/heads/issues/ledger", "toft-ledger"]);
    home.toft(b, &["edit", &id, "-p", "0"]).ok();
    assert_eq!(home.toft(b, &["sync"]).code, 1);
    assert_eq!(home.run(&remote, "git", &["rev-parse", "issues/ledger"]), code);
}

/// Script 18: only what cannot be reached now is offline; a wrong address is an error that says so.
#[test]
fn a_wrong_address_is_an_error_and_no_network_is_not() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    add(&home, a, &["One"]);
    let sync = |url: &str| {
        home.run(a, "git", &["remote", "set-url", "origin", url]);
        let said = home.toft(a, &["sync", "--json"]);
        let value: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
        (value["data"][0]["how"].as_str().unwrap().to_owned(), said.code)
    };
    assert_eq!(sync("../gone.git"), ("not_found".into(), 1));
    assert_eq!(sync(home.path().to_str().unwrap()), ("not_found".into(), 1));
    assert_eq!(sync("http://127.0.0.1:9/x.git"), ("offline".into(), 0));
    for (answer, how) in [("404 Not Found", "not_found"), ("403 Forbidden", "denied"), ("503 Busy", "offline")] {
        let port = answering(answer);
        let (said, code) = sync(&format!("http://127.0.0.1:{port}/x.git"));
        assert_eq!((said.as_str(), code), (how, i32::from(how != "offline")), "{answer}");
    }
    assert_eq!(sync(remote.to_str().unwrap()), ("synced".into(), 0));
    // A repository of another user's whose files may not be read.
    let hook = remote.join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\necho 'policy 7' >&2; exit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    add(&home, a, &["Two"]);
    assert_eq!(sync(remote.to_str().unwrap()), ("protected".into(), 1));
}

/// Script 29: clones of every shape exchange, and nothing of the user's changes.
#[test]
fn partial_shallow_bare_and_submodule_clones_exchange() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    for n in 0..3 {
        add(&home, a, &[&format!("Issue {n}")]);
        branch(&home, a);
    }
    home.run(&remote, "git", &["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", remote.display());
    let mut count = 3;
    for (name, args) in [
        ("partial", &["--filter=blob:none"][..]),
        ("treeless", &["--filter=tree:0"]),
        ("shallow", &["--depth", "1"]),
        ("shallow-all", &["--depth", "1", "--no-single-branch"]),
        ("bare", &["--bare"]),
    ] {
        let mut all = vec!["clone", "-q"];
        all.extend(args);
        all.extend([url.as_str(), name]);
        home.run(home.path(), "git", &all);
        let dir = home.path().join(name);
        home.toft(&dir, &["init"]).ok();
        let row = branch(&home, &dir);
        assert_eq!((&row["how"], &row["received"]), (&"synced".into(), &count.into()), "{name}: {row}");
        let id = add(&home, &dir, &[name]);
        let row = branch(&home, &dir);
        assert_eq!((&row["how"], &row["sent"]), (&"synced".into(), &1.into()), "{name}: {row}");
        count += 1;
        assert!(home.toft(&dir, &["history", &id]).ok().contains("commit "), "{name}");
    }
    let outer = home.repo("outer");
    home.run(&outer, "git", &["-c", "protocol.file.allow=always", "submodule", "-q", "add", &url, "sub"]);
    home.run(&outer, "git", &["commit", "-qm", "sub"]);
    let sub = outer.join("sub");
    home.toft(&sub, &["init"]).ok();
    assert_eq!(branch(&home, &sub)["received"], count);
    add(&home, &sub, &["In a submodule"]);
    assert_eq!(branch(&home, &sub)["sent"], 1);
    assert_eq!(home.run(&outer, "git", &["status", "--porcelain"]), "");
    assert!(!ledger(&outer).exists(), "the outer project's plan is its own");
    assert_eq!(branch(&home, a)["received"], count + 1 - 3);
}

/// Script 34: a ledger in a directory of a repository that holds other things is read there, and nothing is committed or sent.
#[test]
fn a_repository_that_holds_other_things_is_never_committed_to_or_pushed() {
    let home = Home::new();
    let docs = Vcs::Git.remote(&home, "docs.git");
    let work = Vcs::Git.clone(&home, &docs, "docs");
    let git = |args: &[&str]| home.run(&work, "git", args);
    fs::create_dir(work.join("issues")).unwrap();
    fs::write(work.join("a"), "a\n").unwrap();
    git(&["add", "-A"]);
    git(&["commit", "-qm", "first"]);
    git(&["push", "-q", "origin", "main"]);
    let repo = project_with(&home, "project", &work.join("issues"));
    git(&["checkout", "-q", "-b", "wip-do-not-push"]);
    fs::write(work.join("secret.txt"), "password for prod\n").unwrap();
    git(&["add", "-A"]);
    git(&["commit", "-qm", "not for anybody yet"]);
    let before = users(&work);
    add(&home, &repo, &["Team thing", "--ledger", "team"]);
    let row = team(&home, &repo);
    assert_eq!(row["how"], "received", "{row}");
    assert!(row["said"].to_string().contains("holds other files"), "{row}");
    home.toft(&repo, &["sync", "team", "--commit"]).ok();
    let mut after = users(&work);
    after.retain(|path, _| !path.ends_with("issues/issues.jsonl"));
    assert!(after == before, "HEAD, index, branches and files are as they were");
    assert_eq!(branches(&home, &docs), ["main"]);
    assert_eq!(published(&home, &docs).matches("commit ").count(), 1);
    // A user commits the ledger there: others read it.
    git(&["checkout", "-q", "main"]);
    git(&["add", "issues"]);
    git(&["commit", "-qm", "issues"]);
    git(&["push", "-q", "origin", "main"]);
    let other = home.path().join("other-docs");
    home.run(home.path(), "git", &["clone", "-q", docs.to_str().unwrap(), "other-docs"]);
    fs::remove_file(other.join("issues/issues.jsonl")).unwrap();
    let second = project_with(&home, "second", &other.join("issues"));
    add(&home, &second, &["Mine", "--ledger", "team"]);
    assert_eq!(team(&home, &second)["received"], 1);
}

/// Script 33: a commit of the user's in a ledger's own repository stays there until they push it, and what is not committed is
/// nobody's.
fn a_users_commit_is_not_sent_under(vcs: Vcs) {
    let mut home = Home::new();
    home.set("JJ_USER", "Ana");
    home.set("JJ_EMAIL", "ana@example.org");
    let remote = vcs.remote(&home, "remote");
    let one = vcs.clone(&home, &remote, "one");
    let repo = project_with(&home, "a", &one);
    let run = |program: &str, args: &[&str]| drop(home.run(&one, program, args));
    fs::write(one.join("notes-UNCOMMITTED"), "UNCOMMITTED\n").unwrap();
    add(&home, &repo, &["First", "--ledger", "team"]);
    assert_eq!(team(&home, &repo)["how"], "synced", "{vcs:?}");
    fs::write(one.join("README"), "WIP of mine\n").unwrap();
    match vcs {
        Vcs::Git => {
            run("git", &["add", "README"]);
            run("git", &["commit", "-qm", "WIP: not yet"]);
        }
        Vcs::Hg => {
            run("hg", &["add", "README"]);
            run("hg", &["commit", "-qm", "WIP: not yet"]);
        }
        _ => run("jj", &["commit", "--quiet", "-m", "WIP: not yet", "README"]),
    }
    add(&home, &repo, &["Second", "--ledger", "team"]);
    let row = team(&home, &repo);
    let is_hg = vcs == Vcs::Hg;
    assert_eq!(row["how"], if is_hg { "conflict" } else { "synced" }, "{vcs:?}: {row}");
    assert_eq!(row["said"].to_string().contains("WIP: not yet"), is_hg, "{vcs:?}: {row}");
    let sent = match vcs {
        Vcs::Hg => home.run(&remote, "hg", &["log", "-p"]),
        _ => published(&home, &remote),
    };
    let leaked = ["WIP", "UNCOMMITTED"].into_iter().find(|word| sent.contains(word));
    assert!(leaked.is_none() && sent.contains("First"), "{vcs:?}: {leaked:?}");
    // Mercurial sends commits as they are; elsewhere the ledger has a branch of its own.
    assert_eq!(sent.contains("Second"), !is_hg, "{vcs:?}");
    if is_hg {
        run("hg", &["push", "-q"]);
    }
    let row = team(&home, &repo);
    assert_eq!(row["how"], "synced", "{vcs:?}: {row}");
    assert_eq!(fs::read_to_string(one.join("README")).unwrap(), "WIP of mine\n");
    assert_eq!(fs::read_to_string(one.join("notes-UNCOMMITTED")).unwrap(), "UNCOMMITTED\n");
}

#[test]
fn a_users_commit_in_a_ledgers_own_git_repository_is_not_sent() {
    a_users_commit_is_not_sent_under(Vcs::Git);
}

#[test]
fn a_users_commit_in_a_ledgers_own_jujutsu_repository_is_not_sent() {
    a_users_commit_is_not_sent_under(Vcs::JjColocated);
}

#[test]
fn a_users_commit_in_a_ledgers_own_mercurial_repository_is_not_sent() {
    a_users_commit_is_not_sent_under(Vcs::Hg);
}

/// Script 47: a home directory under git is not where plans are kept.
#[test]
fn plans_never_go_into_a_repository_found_above() {
    let home = Home::new();
    let public = Vcs::Git.remote(&home, "public-dotfiles.git");
    let top = home.path().join("home");
    let git = |args: &[&str]| home.run(&top, "git", args);
    git(&["init", "-q", "-b", "main"]);
    fs::write(top.join(".bashrc"), "# rc\n").unwrap();
    git(&["add", ".bashrc"]);
    git(&["commit", "-qm", "dotfiles"]);
    git(&["remote", "add", "origin", public.to_str().unwrap()]);
    git(&["push", "-q", "origin", "main"]);
    let (_, clones) = cloned(&home, &["mine"]);
    home.toft(&clones[0], &["init", "--contributor"]).ok();
    add(&home, &clones[0], &["PRIVATE: buy Acme", "--notes", "board only"]);
    let row = synced(&home, &clones[0], &["planning"]).remove("planning").unwrap();
    assert_eq!(row["how"], "recorded", "{row}");
    assert_eq!(published(&home, &public).matches("commit ").count(), 1);
    assert_eq!(git(&["log", "--format=%s"]).trim(), "dotfiles");
    let planning = top.join(".local/share/toft/planning");
    assert!(home.run(&planning.join(".git/toft/ledger.git"), "git", &["log", "-p"]).contains("PRIVATE"));
    // One that was made by hand, and has no repository of its own, is not committed with the dotfiles.
    fs::remove_dir_all(planning.join(".git")).unwrap();
    add(&home, &clones[0], &["PRIVATE again"]);
    let row = synced(&home, &clones[0], &["planning"]).remove("planning").unwrap();
    assert!(row["said"].to_string().contains("holds other files"), "{row}");
    assert_eq!(published(&home, &public).matches("commit ").count(), 1);
    assert_eq!(git(&["log", "--format=%s"]).trim(), "dotfiles");
}

/// Scripts 31 and 35: a project has one plan, from full and shallow clones, on several machines, before its first commit too.
#[test]
fn a_project_has_one_plan_from_every_clone_of_it() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["full"]));
    for n in 0..3 {
        home.run(&clones[0], "git", &["commit", "-q", "--allow-empty", "-m", &format!("{n}")]);
    }
    home.run(&clones[0], "git", &["push", "-q", "origin", "main"]);
    let url = format!("file://{}", remote.display());
    let shallow = |name: &str| {
        home.run(home.path(), "git", &["clone", "-q", "--depth", "1", &url, name]);
        let dir = home.path().join(name);
        home.toft(&dir, &["init", "--contributor"]).ok();
        dir
    };
    let one = shallow("one");
    let id = add(&home, &one, &["My plan"]);
    home.run(&clones[0], "git", &["commit", "-q", "--allow-empty", "-m", "later"]);
    home.run(&clones[0], "git", &["push", "-q", "origin", "main"]);
    let two = shallow("two");
    home.toft(&clones[0], &["init", "--contributor"]).ok();
    for repo in [&two, &clones[0]] {
        assert!(listed(&home, repo).contains_key(&id), "{}", repo.display());
    }
    assert_eq!(fs::read_to_string(one.join(".git/shallow")).unwrap().lines().count(), 1, "it is as shallow as it was");
    let empty = Vcs::Git.remote(&home, "empty.git");
    let plans: Vec<PathBuf> = ["x", "y"].iter().map(|name| Vcs::Git.clone(&home, &empty, name)).collect();
    for repo in &plans {
        home.toft(repo, &["init", "--contributor"]).ok();
    }
    let id = add(&home, &plans[0], &["Before the first commit"]);
    assert!(listed(&home, &plans[1]).contains_key(&id));
}
