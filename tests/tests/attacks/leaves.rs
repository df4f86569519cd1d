//! What leaves: nothing that was never meant to.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::share::{another, branch, branches, published, team};

/// Something that every check for secrets knows.
const TOKEN: &str = "ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";

/// From now on a clone cannot reach its remote.
fn offline(home: &Home, repo: &Path) {
    home.run(repo, "git", &["remote", "set-url", "origin", "http://127.0.0.1:9/x.git"]);
}

fn online(home: &Home, repo: &Path, remote: &Path) {
    home.run(repo, "git", &["remote", "set-url", "origin", remote.to_str().unwrap()]);
}

/// Script 08: a secret that was typed and removed between two syncs was recorded in between, and never leaves.
#[test]
fn a_secret_that_was_removed_before_it_was_sent_never_leaves() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let a = &clones[0];
    let id = add(&home, a, &["Rotate the key"]);
    branch(&home, a);
    let body = format!("the old one is {TOKEN}");
    home.toft(a, &["edit", &id, "-d", &body]).ok();
    assert_eq!(branch(&home, a)["how"], "held");
    offline(&home, a);
    assert_eq!(branch(&home, a)["how"], "offline");
    home.toft(a, &["edit", &id, "-d", "UNSENT words"]).ok();
    branch(&home, a);
    online(&home, a, &remote);
    home.toft(a, &["edit", &id, "-d", "it is in the vault"]).ok();
    assert_eq!(branch(&home, a)["how"], "synced");
    let all = published(&home, &remote);
    assert!(all.contains("it is in the vault") && !all.contains(TOKEN) && !all.contains("UNSENT"), "{all}");
    // The same where there was no remote while it was written.
    let late = home.repo("late");
    let id = add(&home, &late, &["Written alone", "-d", &body]);
    assert_eq!(branch(&home, &late)["how"], "recorded");
    home.toft(&late, &["edit", &id, "-d", "nothing"]).ok();
    let other = Vcs::Git.remote(&home, "other.git");
    home.run(&late, "git", &["remote", "add", "origin", other.to_str().unwrap()]);
    assert_eq!(branch(&home, &late)["how"], "synced");
    assert!(!published(&home, &other).contains(TOKEN));
    // Mercurial sends commits as they are: each one is looked at.
    let other = Vcs::Hg.remote(&home, "hg");
    let one = home.path().join("one");
    fs::create_dir(&one).unwrap();
    home.run(&one, "hg", &["init"]);
    let repo = project_with(&home, "hg-project", &one);
    let id = add(&home, &repo, &["In Mercurial", "--ledger", "team", "-d", &body]);
    assert_eq!(team(&home, &repo)["how"], "recorded");
    home.toft(&repo, &["edit", &id, "-d", "nothing"]).ok();
    fs::write(one.join(".hg/hgrc"), format!("[paths]\ndefault = {}\n", other.display())).unwrap();
    assert_eq!(team(&home, &repo)["how"], "held");
    assert_eq!(home.run(&other, "hg", &["log", "-T", "x"]), "");
}

/// A yes never lets a secret through; the name of a finding does, that one only.
#[test]
fn a_yes_never_sends_a_secret_and_the_name_of_a_finding_does() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    let one = add(&home, a, &["One", "-d", TOKEN]);
    add(&home, a, &["Two", "--notes", "password=hunter22"]);
    let said = home.toft(a, &["sync", "--yes"]);
    assert!(said.code == 4 && !said.out.contains(TOKEN) && !said.out.contains("hunter22"), "{said:?}");
    let row = branch(&home, a);
    let findings: Vec<&str> = row["findings"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(findings.len(), 2, "{row}");
    assert_eq!(home.toft(a, &["sync", "--yes", "--allow", findings[0]]).code, 4, "the other one is still there");
    assert_eq!(branches(&home, &remote), ["main"]);
    home.toft(a, &["sync", "--allow", findings[1]]).ok();
    assert!(published(&home, &remote).contains(TOKEN));
    // What the user allowed is not asked about again; something new is.
    home.toft(a, &["edit", &one, "-p", "0"]).ok();
    assert_eq!(branch(&home, a)["how"], "synced");
    home.toft(a, &["edit", &one, "-m", "and token: abcd1234efgh"]).ok();
    assert_eq!(branch(&home, a)["how"], "held");
    home.toft(a, &["sync", "--allow", "everything"]).fails(2);
}

/// Scripts 09 and 10: what was deleted or moved before anybody else had it leaves nothing at all.
#[test]
fn what_was_deleted_or_moved_before_it_was_shared_leaves_nothing() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let a = &clones[0];
    let private = home.path().join("private");
    fs::create_dir(&private).unwrap();
    home.toft(a, &["ledger", "add", "board-room", private.to_str().unwrap()]).ok();
    let salaries = add(&home, a, &["SALARIES", "-d", "ana 100k", "-l", "SECRETLABEL"]);
    home.toft(a, &["edit", &salaries, "-m", "SAID"]).ok();
    home.toft(a, &["delete", &salaries]).ok();
    let merger = add(&home, a, &["MERGER", "-d", "in May", "--notes", "SECRETNOTES"]);
    home.toft(a, &["move", &merger, "--to", "board-room"]).ok();
    let shared = add(&home, a, &["Shared"]);
    let row = branch(&home, a);
    assert_eq!((&row["how"], &row["sent"]), (&"synced".into(), &1.into()), "{row}");
    let all = published(&home, &remote);
    for word in ["SALARIES", "SECRETLABEL", "SAID", "MERGER", "SECRETNOTES", "board-room", &salaries, &merger] {
        assert!(!all.contains(word), "{word}: {all}");
    }
    assert!(all.contains(&shared));
    assert_eq!(listed(&home, a)[&merger]["notes"], "SECRETNOTES", "it is where it was moved to");
    // Here it can still be taken back.
    home.toft(a, &["reopen", &salaries]).ok();
    assert_eq!(listed(&home, a)[&salaries]["body"], "ana 100k");
    home.toft(a, &["delete", &salaries]).ok();
    branch(&home, a);
    home.toft(a, &["undo"]).ok();
    assert_eq!(listed(&home, a)[&salaries]["title"], "SALARIES");
    home.toft(a, &["delete", &salaries]).ok();
    // What was shared is deleted for everybody; what was shared and moved says nothing any more.
    home.toft(a, &["delete", &shared]).ok();
    let gone = add(&home, a, &["Was public", "-d", "OLDTEXT"]);
    branch(&home, a);
    home.toft(a, &["move", &gone, "--to", "board-room"]).ok();
    branch(&home, a);
    branch(&home, &clones[1]);
    assert!(listed(&home, &clones[1]).is_empty());
    let now = home.run(&remote, "git", &["show", "toft-ledger:issues.jsonl"]);
    assert!(now.contains(&gone) && now.contains(&shared) && !now.contains("OLDTEXT"), "{now}");
    assert_eq!(fs::read(ledger(a)).unwrap(), fs::read(ledger(&clones[1])).unwrap());
}

/// Script 09, the half with a ledger in the tree: the user may commit at any moment, so the text goes at once.
#[test]
fn what_no_commit_has_leaves_the_tree_when_it_is_deleted_or_moved() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    home.toft(a, &["init", "--tree"]).ok();
    let public = add(&home, a, &["Public"]);
    commit_all(&home, a, "issues");
    let clean = fs::read_to_string(a.join(".toft/issues.jsonl")).unwrap();
    let merger = add(&home, a, &["MERGER", "-d", "in May", "--notes", "board only"]);
    home.toft(a, &["edit", &merger, "-m", "price 3M"]).ok();
    let other = add(&home, a, &["OTHER"]);
    home.toft(a, &["delete", &other]).ok();
    home.toft(a, &["init", "--contributor"]).ok();
    home.toft(a, &["move", &merger, "--to", "planning"]).ok();
    assert_eq!(fs::read_to_string(a.join(".toft/issues.jsonl")).unwrap(), clean);
    assert_eq!(home.run(a, "git", &["status", "--porcelain"]), "");
    assert_eq!(listed(&home, a)[&merger]["notes"], "board only");
    // What is committed is deleted by a tombstone, which others hear of.
    home.toft(a, &["init", "--maintainer"]).ok();
    home.toft(a, &["delete", &public]).ok();
    assert!(fs::read_to_string(a.join(".toft/issues.jsonl")).unwrap().contains("\"deleted\""));
    home.toft(a, &["reopen", &other]).ok();
    assert_eq!(listed(&home, a)[&other]["title"], "OTHER");
}

/// Scripts 12 and 13, the secrets in them: a proposal with one is not made.
#[test]
fn a_proposal_with_a_secret_is_not_made() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["keeper", "mine"]));
    let mine = &clones[1];
    add(&home, &clones[0], &["Upstream's"]);
    branch(&home, &clones[0]);
    home.toft(mine, &["init", "--contributor"]).ok();
    home.toft(mine, &["sync"]).ok();
    let id = add(&home, mine, &["With a key", "-d", TOKEN]);
    let refused = home.toft(mine, &["propose", &id, "--push", "origin"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    let said = refused.out;
    assert!(said.contains("looks like a secret") && !said.contains(TOKEN), "{said}");
    assert!(!published(&home, &remote).contains(TOKEN) && !branches(&home, &remote).iter().any(|b| b.contains(&id)));
    let finding = said.split("Finding ").nth(1).unwrap()[..12].to_owned();
    home.toft(mine, &["propose", &id, "--push", "origin", "--allow", &finding]).ok();
    assert!(branches(&home, &remote).iter().any(|branch| branch.contains(&id)));
    // Into the tree neither.
    let (_, clones) = {
        let tree = Vcs::Git.remote(&home, "tree.git");
        let first = home.git("tree-first");
        home.toft(&first, &["init", "--tree"]).ok();
        commit_all(&home, &first, "issues");
        home.run(&first, "git", &["push", "-q", tree.to_str().unwrap(), "main"]);
        let clone = another(&home, &tree, "tree-mine");
        (tree, [clone])
    };
    home.toft(&clones[0], &["init", "--contributor"]).ok();
    let id = add(&home, &clones[0], &["With a key", "-d", TOKEN]);
    home.toft(&clones[0], &["propose", &id]).fails(4);
    assert_eq!(home.run(&clones[0], "git", &["status", "--porcelain"]), "");
}

/// The guard looks at every commit that would leave, and a yes does not let a secret pass.
#[test]
fn the_guard_finds_a_secret_that_a_later_commit_takes_away() {
    let (home, (_, clones)) = Home::with(|home| cloned(home, &["a"]));
    let a = &clones[0];
    home.toft(a, &["init", "--tree"]).ok();
    let id = add(&home, a, &["Key", "-d", TOKEN]);
    home.toft(a, &["sync", "--commit"]).ok();
    home.toft(a, &["edit", &id, "-d", "gone"]).ok();
    home.toft(a, &["sync", "--commit"]).ok();
    let said = home.toft(a, &["doctor", "--outgoing"]);
    assert!(said.code == 4 && said.out.contains("looks like a secret"), "{said:?}");
    assert_eq!(home.toft(a, &["doctor", "--outgoing", "--yes"]).code, 4);
    let finding = said.out.split("finding ").nth(1).unwrap()[..12].to_owned();
    home.toft(a, &["doctor", "--outgoing", "--allow", &finding]).ok();
}

/// `toft delete --purge` takes a text out of every place that is toft's, and says where else it is.
#[test]
fn a_purged_issue_is_gone_from_the_remote_and_comes_back_from_nowhere() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let (a, b) = (&clones[0], &clones[1]);
    let before = add(&home, a, &["Before"]);
    branch(&home, a);
    let id = add(&home, a, &["PURGETITLE", "-d", "PURGEBODY", "-l", "PURGELABEL"]);
    branch(&home, a);
    branch(&home, b);
    home.toft(b, &["edit", &id, "-m", "PURGESAID"]).ok();
    branch(&home, b);
    let after = add(&home, b, &["After"]);
    branch(&home, b);
    branch(&home, a);
    assert!(published(&home, &remote).contains("PURGEBODY"));
    // It asks, and a look changes nothing.
    let tip = home.run(&remote, "git", &["rev-parse", "toft-ledger"]);
    home.toft(a, &["delete", "--purge", &id]).fails(4);
    let said = home.toft(a, &["delete", "--purge", &id, "-n", "--json"]).data();
    assert_eq!((&said["remote"], said["clones"].as_array().unwrap().len()), (&"origin".into(), 1), "{said}");
    assert_eq!(home.run(&remote, "git", &["rev-parse", "toft-ledger"]), tip);
    home.toft(a, &["delete", "--purge", &id, "--yes"]).says_all(&["origin", "clone "]);
    let clean = |what: &str| {
        let all = published(&home, &remote);
        for word in ["PURGETITLE", "PURGEBODY", "PURGELABEL", "PURGESAID"] {
            assert!(!all.contains(word), "{what}: {word}");
        }
        assert!(all.contains(&before) && all.contains(&after), "{what}");
    };
    clean("after the purge");
    assert_eq!(branches(&home, &remote), ["main", "toft-ledger"]);
    assert!(home.toft(a, &["history", &before]).ok().contains("commit "), "the rest of history is there");
    // The other clone has edits that nobody saw; none of it comes back.
    home.toft(b, &["edit", &id, "-d", "PURGEBODY again"]).ok();
    let row = branch(&home, b);
    assert_eq!((&row["how"], &row["rewritten"]), (&"synced".into(), &true.into()), "{row}");
    clean("after the other clone's sync");
    branch(&home, a);
    assert_eq!(fs::read(ledger(a)).unwrap(), fs::read(ledger(b)).unwrap());
    assert!(!fs::read_to_string(ledger(b)).unwrap().contains("PURGE"));
    assert_eq!(listed(&home, b).len(), 2);
    home.toft(a, &["reopen", &id]).fails(5);
    let third = another(&home, &remote, "third");
    assert_eq!(branch(&home, &third)["received"], 3);
}

#[test]
fn a_purge_works_in_every_repository_of_toft_and_says_what_it_cannot_do() {
    let home = Home::new();
    // A ledger's own repository, with another project's part beside it.
    let plans = Vcs::Git.remote(&home, "plans.git");
    let (_, clones) = cloned(&home, &["mine"]);
    let other = home.repo("other");
    let dir = Vcs::Git.clone(&home, &plans, "plans");
    for repo in [&clones[0], &other] {
        home.toft(repo, &["init", "--contributor", "--planning", dir.to_str().unwrap()]).ok();
    }
    let sync = |repo: &Path| synced(&home, repo, &["planning"]).remove("planning").unwrap();
    let kept = add(&home, &other, &["Of another project"]);
    assert_eq!(sync(&other)["how"], "synced");
    let id = add(&home, &clones[0], &["PURGETITLE", "-d", "PURGEBODY"]);
    assert_eq!(sync(&clones[0])["how"], "synced");
    home.toft(&clones[0], &["edit", &id, "-d", "else"]).ok();
    assert_eq!(sync(&clones[0])["how"], "synced");
    home.toft(&clones[0], &["delete", "--purge", &id, "-y"]).ok();
    let all = published(&home, &plans);
    assert!(!all.contains("PURGE") && all.contains(&kept), "{all}");
    assert_eq!(home.run(&dir, "git", &["for-each-ref"]), "", "the repository itself has no commit of toft's");
    assert_eq!((&sync(&clones[0])["how"], &sync(&other)["how"]), (&"synced".into(), &"synced".into()));
    assert!(!published(&home, &plans).contains("PURGE"));
    // Without a remote.
    let alone = home.repo("alone");
    let id = add(&home, &alone, &["PURGETITLE"]);
    branch(&home, &alone);
    home.toft(&alone, &["delete", "--purge", &id]).ok();
    assert!(!home.run(&alone.join(".git/toft/ledger.git"), "git", &["log", "-p", "toft-ledger"]).contains("PURGE"));
    // In the tree: the file is toft's to write, the commits are not.
    let tree = home.repo("tree");
    home.toft(&tree, &["init", "--tree"]).ok();
    let id = add(&home, &tree, &["PURGETITLE"]);
    home.toft(&tree, &["sync", "--commit"]).ok();
    let head = home.run(&tree, "git", &["rev-parse", "HEAD"]);
    home.toft(&tree, &["delete", "--purge", &id]).says("1 commits");
    assert_eq!(home.run(&tree, "git", &["rev-parse", "HEAD"]), head);
    assert!(!fs::read_to_string(tree.join(".toft/issues.jsonl")).unwrap().contains("PURGE"));
    // Others keep the ledger that a contributor sees.
    let keeper = another(&home, &home.path().join("remote.git"), "keeper");
    let theirs = add(&home, &keeper, &["Theirs"]);
    branch(&home, &keeper);
    branch(&home, &clones[0]);
    home.toft(&clones[0], &["delete", "--purge", &theirs, "-y"]).fails(5);
}

/// Ledgers say git's author; which agent wrote is told only if the configuration says so, and `ledger show` says so.
#[test]
fn names_are_git_s_author_unless_agents_are_wanted() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["a", "b"]));
    let a = &clones[0];
    let agent = [("TOFT_AGENT", "AGENT-on-host-7")];
    let id = home.toft_with(a, &agent, &["add", "One", "-q"]).ok().trim().to_owned();
    home.toft_with(a, &agent, &["edit", &id, "-m", "said"]).ok();
    home.toft_with(a, &agent, &["claim", &id]).ok();
    home.toft_with(a, &agent, &["finish", "-m", "done", "--no-change", "none needed"]).ok();
    let two = home.toft_with(a, &agent, &["add", "Two", "-q"]).ok().trim().to_owned();
    home.toft_with(a, &agent, &["claim", &two]).ok();
    home.toft_with(a, &agent, &["sync"]).ok();
    let all = published(&home, &remote);
    assert!(!all.contains("AGENT") && all.contains("\"by\":\"Ana\"") && all.contains("\"assignee\":\"Ana\""), "{all}");
    let shown = home.toft(a, &["ledger", "show", "--json"]).data();
    let row = &shown[0];
    assert_eq!(
        (&row["names"], &row["name"], &row["branch"]),
        (&"author".into(), &"Ana".into(), &"toft-ledger".into()),
        "{row}"
    );
    let replica = row["replica"].as_str().unwrap();
    assert!(all.contains(replica), "clocks say which clone wrote: {replica}");
    assert!(home.toft(a, &["ledger", "show"]).ok().contains("[sync] names"));
    let b = &clones[1];
    fs::write(b.join(".git/toft/config.toml"), "[sync]\nnames = \"agent\"\n").unwrap();
    home.toft_with(b, &agent, &["add", "Three", "-q"]).ok();
    home.toft(b, &["sync"]).ok();
    assert!(published(&home, &remote).contains("\"by\":\"AGENT-on-host-7\""));
}

/// The table of docs/guides/share.md, read off real bare remotes: each kind of clone writes markers everywhere it can, syncs
/// whatever it can, and only what the table says is there.
#[test]
fn each_kind_of_clone_publishes_what_the_table_says() {
    let home = Home::new();
    let text = fs::read_to_string(toft_stories::stories_dir().join("../docs/guides/share.md")).unwrap();
    let row = |kind: &str| -> Vec<String> {
        let start = format!("| {kind} |");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{kind} is not told"));
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let fields = ["title", "body", "notes", "comment", "label", "agent's name"];
    let write = |repo: &Path, kind: &str, more: &[&str]| -> String {
        let mark = |field: &str| format!("MARK-{kind}-{}", field.split('\'').next().unwrap());
        let (title, body, notes, label) = (mark("title"), mark("body"), mark("notes"), mark("label"));
        let mut args = vec!["add", &title, "-d", &body, "--notes", &notes, "-l", &label, "-q"];
        args.extend(more);
        let agent = mark("agent");
        let env = [("TOFT_AGENT", agent.as_str())];
        let id = home.toft_with(repo, &env, &args).ok().trim().to_owned();
        home.toft_with(repo, &env, &["edit", &id, "-m", &mark("comment")]).ok();
        id
    };
    let check = |kind: &str, name: &str, remotes: &[&Path]| {
        let cells = row(name);
        let all: String = remotes.iter().map(|remote| published(&home, remote)).collect();
        for (n, field) in fields.iter().enumerate() {
            let marker = format!("MARK-{kind}-{}", field.split('\'').next().unwrap());
            assert_eq!(all.contains(&marker), cells[n + 3] == "yes", "{name}: {field}\n{cells:?}");
        }
    };
    let (remote, clones) = cloned(&home, &["maintainer", "fork"]);
    write(&clones[0], "M", &[]);
    home.toft(&clones[0], &["sync"]).ok();
    assert_eq!(branches(&home, &remote), ["main", "toft-ledger"]);
    check("M", "maintainer, `branch`", &[&remote]);
    // A contributor's clone: planning with a remote of its own, and the project's remote.
    let plans = Vcs::Git.remote(&home, "plans.git");
    let planning = Vcs::Git.clone(&home, &plans, "plans");
    let fork = &clones[1];
    home.toft(fork, &["init", "--contributor", "--planning", planning.to_str().unwrap()]).ok();
    write(fork, "P", &[]);
    home.toft(fork, &["sync"]).ok();
    check("P", "contributor, the project's remote", &[&remote]);
    check("P", "contributor, `planning`'s own remote", &[&plans]);
    let id = write(fork, "O", &[]);
    home.toft(fork, &["propose", &id, "--push", "origin"]).ok();
    check("O", "contributor, `toft propose`", &[&remote]);
    // A ledger in the tree: sync alone, then what the user commits and pushes.
    let project = Vcs::Git.remote(&home, "tree.git");
    let first = home.git("tree-first");
    home.run(&first, "git", &["push", "-q", project.to_str().unwrap(), "main"]);
    let tree = another(&home, &project, "tree");
    home.toft(&tree, &["init", "--tree"]).ok();
    write(&tree, "T", &[]);
    home.toft(&tree, &["sync"]).ok();
    check("T", "`tree`, sync alone", &[&project]);
    home.toft(&tree, &["sync", "--commit"]).ok();
    home.run(&tree, "git", &["push", "-q", "origin", "main"]);
    check("T", "`tree`, after your push", &[&project]);
    // A shared ledger in a repository of its own, and in one that holds other things.
    let shared = Vcs::Git.remote(&home, "shared.git");
    let own = Vcs::Git.clone(&home, &shared, "own");
    let repo = project_with(&home, "sharing", &own);
    write(&repo, "S", &["--ledger", "team"]);
    home.toft(&repo, &["sync"]).ok();
    check("S", "`shared`, its own repository", &[&shared]);
    let mixed = Vcs::Git.remote(&home, "mixed.git");
    let among = Vcs::Git.clone(&home, &mixed, "among");
    fs::write(among.join("main.c"), "int main;\n").unwrap();
    commit_all(&home, &among, "code");
    home.run(&among, "git", &["push", "-q", "origin", "main"]);
    home.toft(&repo, &["ledger", "add", "among", among.to_str().unwrap()]).ok();
    write(&repo, "X", &["--ledger", "among"]);
    home.toft(&repo, &["sync"]).ok();
    check("X", "`shared`, a repository with other files", &[&mixed]);
}
