//! A plot for every job: workspaces are made, found again, kept apart, and taken down with nothing lost.

use toft_stories::kept::create;
use toft_stories::prelude::*;
use toft_stories::workspaces::users_own;

/// A repository with a few files, committed.
fn project(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    fs::write(repo.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(repo.join("b.txt"), "alpha\nbeta\n").unwrap();
    fs::write(repo.join(".gitignore"), "target/\n.env\n").unwrap();
    commit_all(home, &repo, "files");
    repo
}

fn commit(home: &Home, dir: &Path, file: &str, text: &str) {
    fs::write(dir.join(file), text).unwrap();
    home.run(dir, "git", &["add", file]);
    home.run(dir, "git", &["commit", "-q", "-m", &format!("write {file}")]);
}

fn survey(home: &Home, repo: &Path, name: &str) -> Value {
    home.toft(repo, &["ws", "list", name, "--json"]).data()["survey"].clone()
}

/// A workspace without a task is left alone for an hour; these are older.
fn gc(home: &Home, repo: &Path) -> Vec<(String, bool)> {
    let rows = home.toft(repo, &["ws", "gc", "--json"]).data();
    let rows = rows.as_array().unwrap();
    rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), row["gone"].as_bool().unwrap())).collect()
}

#[test]
fn a_new_user_gives_three_agents_a_plot_each_and_nothing_of_theirs_changes() {
    let (home, repo) = Home::with(project);
    home.run(&repo, "git", &["branch", "mine"]);
    fs::write(repo.join("b.txt"), "stashed\n").unwrap();
    home.run(&repo, "git", &["stash", "-q"]);
    fs::write(repo.join("a.txt"), "half done\n").unwrap();
    fs::write(repo.join("staged.txt"), "staged\n").unwrap();
    home.run(&repo, "git", &["add", "staged.txt"]);
    fs::write(repo.join("untracked.txt"), "untracked\n").unwrap();
    for title in ["Write the parser", "Write the printer", "Write the docs"] {
        add(&home, &repo, &[title]);
    }
    let before = users_own(&home, &repo);
    let claimed: Vec<Value> = thread::scope(|scope| {
        let claims: Vec<_> = ["ann", "bob", "cid"]
            .map(|agent| {
                let (home, repo) = (&home, &repo);
                scope.spawn(move || home.toft(repo, &["claim", "--ws", "--as", agent, "--json"]).data())
            })
            .into_iter()
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    assert_eq!(users_own(&home, &repo), before);
    let paths: Vec<PathBuf> =
        claimed.iter().map(|claim| PathBuf::from(claim["workspace"]["path"].as_str().unwrap())).collect();
    for (claim, path) in claimed.iter().zip(&paths) {
        assert!(path.join("a.txt").is_file() && !path.starts_with(&repo));
        let branch = claim["workspace"]["branch"].as_str().unwrap();
        let short = claim["issue"]["id"].as_str().unwrap().get(..7).unwrap();
        assert!(branch.starts_with(&format!("toft/{short}-write-the-")), "named after the issue: {branch}");
        assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "one\ntwo\nthree\n", "from what was committed");
    }
    for (n, path) in paths.iter().enumerate() {
        commit(&home, path, &format!("work{n}.txt"), "first\n");
        commit(&home, path, &format!("work{n}.txt"), "first\nsecond\n");
    }
    fs::write(paths[1].join("notes.txt"), "not committed\n").unwrap();
    for (agent, claim) in ["ann", "bob", "cid"].iter().zip(&claimed) {
        let head = home.run(Path::new(claim["workspace"]["path"].as_str().unwrap()), "git", &["rev-parse", "HEAD"]);
        home.toft(&repo, &["finish", "-m", "written", "--evidence", head.trim(), "--as", agent]).ok();
    }
    assert_eq!(users_own(&home, &repo), before, "nothing but the agents' own branches came");
    // Elsewhere, somebody merges the first as one commit, and the user brings that home on a branch of the remote.
    let upstream = home.path().join("upstream");
    home.run(home.path(), "git", &["clone", "-q", "api", "upstream"]);
    let branch = claimed[0]["workspace"]["branch"].as_str().unwrap();
    home.run(&upstream, "git", &["merge", "-q", "--squash", &format!("origin/{branch}")]);
    home.run(&upstream, "git", &["commit", "-q", "-m", "the parser (#1)"]);
    home.run(&repo, "git", &["fetch", "-q", "../upstream", "main:refs/remotes/origin/main"]);
    let gone = gc(&home, &repo);
    assert_eq!(gone.iter().filter(|(_, gone)| *gone).count(), 1, "{gone:?}");
    assert!(!paths[0].exists() && paths[1].exists() && paths[2].exists());
    assert_eq!(fs::read_to_string(paths[1].join("notes.txt")).unwrap(), "not committed\n");
    assert_eq!(users_own(&home, &repo), before, "byte for byte, throughout");
    assert!(home.run(&repo, "git", &["branch", "--list", branch]).is_empty(), "a branch that landed goes too");
}

#[test]
fn landed_is_judged_by_ancestry_patches_or_trees() {
    let (home, repo) = Home::with(project);
    let names = ["nothing", "merged", "rebased", "squashed", "squashed-then-changed", "not-landed", "reverted"];
    let plots: Vec<_> = names.iter().map(|name| create(&home, &repo, name, &[])).collect();
    for (name, plot) in names.iter().zip(&plots).skip(1) {
        commit(&home, plot, &format!("{name}.txt"), "one\n");
        commit(&home, plot, &format!("{name}.txt"), "one\ntwo\n");
    }
    home.run(&repo, "git", &["merge", "-q", "--no-ff", "-m", "merge", "merged"]);
    home.run(&repo, "git", &["cherry-pick", "rebased~1", "rebased"]);
    for name in ["squashed", "squashed-then-changed", "reverted"] {
        home.run(&repo, "git", &["merge", "-q", "--squash", name]);
        home.run(&repo, "git", &["commit", "-q", "-m", name]);
    }
    home.run(&repo, "git", &["revert", "--no-edit", "HEAD"]);
    commit(&home, &repo, "squashed-then-changed.txt", "one, but otherwise\n");
    let landed: Vec<_> = names.iter().map(|name| survey(&home, &repo, name)["landed"].clone()).collect();
    let expected = ["nothing", "merged", "rebased", "squashed", "squashed"].map(Value::from);
    assert_eq!(landed[..5], expected);
    assert_eq!(landed[5], Value::Null);
    assert_eq!(survey(&home, &repo, "not-landed")["ahead"], 2);
    // What landed and was taken back is one commit there still; the work is in history.
    assert_eq!(landed[6], "squashed");
    // Looking changes nothing, not even in git's own directory, but for what toft remembers of it.
    let before = snapshot(home.path());
    home.toft(&repo, &["ws", "list"]).ok();
    home.toft(&repo, &["ws", "gc", "-n"]).ok();
    let changed: Vec<_> =
        snapshot(home.path()).into_iter().filter(|(path, bytes)| before.get(path) != Some(bytes)).collect();
    let own = |path: &&PathBuf| ["toft.db", "/toft/looks/"].iter().any(|name| path.to_string_lossy().contains(name));
    let changed: Vec<_> = changed.iter().map(|(path, _)| path).filter(|path| !own(path)).collect();
    assert!(changed.is_empty(), "{changed:?}");
}

#[test]
fn a_stale_holder_cannot_clean_up_after_the_next_one() {
    let (home, repo) = Home::with(project);
    add(&home, &repo, &["Contested"]);
    let old = home.toft(&repo, &["claim", "--ws", "--as", "old", "--ttl", "1s", "--json"]).data();
    let fence = old["lease"]["token"].as_str().unwrap();
    let path = PathBuf::from(old["workspace"]["path"].as_str().unwrap());
    fs::write(path.join("work.txt"), "precious\n").unwrap();
    // The lease runs out.
    thread::sleep(std::time::Duration::from_millis(1_300));
    let new = home.toft(&repo, &["claim", "--ws", "--as", "new", "--json"]).data();
    assert_eq!(
        new["workspace"]["path"], old["workspace"]["path"],
        "the next holder goes on where the last one stopped"
    );
    let name = new["workspace"]["name"].as_str().unwrap();
    for args in [
        &["ws", "rm", name, "--rescue", "--as", "old", "--fence", fence][..],
        &["ws", "rm", name, "--rescue", "--as", "old"],
        &["ws", "create", name, "--as", "old", "--fence", fence],
    ] {
        home.toft(&repo, args).fails(5);
    }
    assert!(gc(&home, &repo).iter().all(|(_, gone)| !gone), "nor does tidying up");
    assert_eq!(fs::read_to_string(path.join("work.txt")).unwrap(), "precious\n");
}

#[test]
fn without_a_workspace_nothing_is_claimed() {
    let (home, repo) = Home::with(project);
    let id = add(&home, &repo, &["Isolated"]);
    let config = repo.join(".git/toft/config.toml");
    // A place inside a repository, a place that cannot be made, a base that is not there.
    fs::write(&config, format!("[workspaces]\nroot = \"{}\"\n", repo.join("here").display())).unwrap();
    home.toft(&repo, &["claim", "--ws"]).refuses_all(2, &["nothing is claimed", "inside the repository"]);
    fs::write(home.path().join("file"), "").unwrap();
    fs::write(&config, format!("[workspaces]\nroot = \"{}\"\n", home.path().join("file/below").display())).unwrap();
    home.toft(&repo, &["claim", "--ws"]).fails(1);
    fs::remove_file(&config).unwrap();
    home.toft(&repo, &["claim", "--ws", "--base", "nowhere"]).fails(3);
    home.toft(&repo, &["claim", "--base", "main"]).fails(2);
    let ready = home.toft(&repo, &["ready", "--json"]).data();
    assert_eq!(ready.as_array().unwrap().len(), 1, "it can be claimed by the next: {ready}");
    assert!(!repo.join("here").exists());
    assert!(home.toft(&repo, &["claim", "--ws"]).ok().contains(&id));
    fs::write(&config, "[workspaces]\nroot = \"relative\"\n").unwrap();
    assert!(home.toft(&repo, &["ready"]).fails(2).contains("absolute"));
}

#[test]
fn unknown_directories_are_named_and_never_touched() {
    let (home, repo) = Home::with(project);
    let one = create(&home, &repo, "one", &[]);
    let strange = one.parent().unwrap().join("strange");
    fs::create_dir(&strange).unwrap();
    fs::write(strange.join("file"), "somebody's").unwrap();
    assert!(home.toft(&repo, &["ws", "list"]).ok().contains("strange"));
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    home.toft(&repo, &["ws", "create", "--name", "strange"]).fails(5);
    assert_eq!(fs::read_to_string(strange.join("file")).unwrap(), "somebody's");
    home.toft(&repo, &["doctor"]).says("strange");
}

#[test]
fn a_pinned_one_stays_and_an_adopted_one_is_like_any_other() {
    let (home, repo) = Home::with(project);
    home.run(&repo, "git", &["worktree", "add", "-q", "../by-hand"]);
    let by_hand = home.path().join("by-hand");
    home.toft(&repo, &["ws", "create", "--adopt", "../by-hand"]).ok();
    home.toft(&repo, &["ws", "create", "--adopt", "."]).fails(2);
    home.toft(&repo, &["ws", "keep", "by-hand"]).ok();
    home.toft(&repo, &["ws", "rm", "by-hand", "--rescue"]).fails(5);
    home.toft(&repo, &["ws", "keep", "--off", "by-hand"]).ok();
    fs::write(by_hand.join("found.txt"), "by hand\n").unwrap();
    home.toft(&repo, &["ws", "rm", "by-hand"]).fails(5);
    let before = whole(&home, &by_hand);
    home.toft(&repo, &["ws", "rm", "by-hand", "--rescue"]).ok();
    assert!(!by_hand.exists());
    home.toft(&repo, &["ws", "restore", "by-hand"]).ok();
    assert_eq!(whole(&home, &by_hand), before);
}

#[test]
fn a_branch_that_somebody_else_has_is_kept() {
    let (home, repo) = Home::with(project);
    let one = create(&home, &repo, "one", &[]);
    home.run(&repo, "git", &["worktree", "add", "-q", "--force", "../second", "one"]);
    home.toft(&repo, &["ws", "rm", "one"]).ok();
    assert!(!one.exists());
    assert_eq!(home.run(&home.path().join("second"), "git", &["branch", "--show-current"]).trim(), "one");
    home.run(&repo, "git", &["rev-parse", "--verify", "refs/heads/one"]);
}

#[test]
fn what_cannot_be_put_away_stays() {
    let (home, repo) = Home::with(project);
    let nested = create(&home, &repo, "nested", &[]);
    home.run(&nested, "git", &["init", "-q", "inner"]);
    fs::write(nested.join("inner/file"), "theirs\n").unwrap();
    let hidden = create(&home, &repo, "hidden", &[]);
    fs::create_dir_all(hidden.join("target/clone")).unwrap();
    home.run(&hidden.join("target/clone"), "git", &["init", "-q", "-b", "main"]);
    let locked = create(&home, &repo, "locked", &[]);
    home.run(&repo, "git", &["worktree", "lock", "--reason", "on a stick", locked.to_str().unwrap()]);
    for (name, why) in [("nested", "inner/"), ("hidden", "target/clone"), ("locked", "on a stick")] {
        home.toft(&repo, &["ws", "rm", name]).refuses(5, why);
    }
    // What is mounted, locked or of another user stays, whatever is asked for.
    assert!(home.toft(&repo, &["ws", "rm", "locked", "--rescue"]).fails(5).contains("on a stick"));
    assert!(nested.join("inner/file").is_file() && hidden.join("target/clone/.git").is_dir() && locked.is_dir());
}

#[test]
fn finishing_keeps_or_lets_go_as_configured() {
    for (keep, outcome, stays) in
        [("always", "done", true), ("unlanded", "done", true), ("failed", "done", false), ("failed", "failed", true)]
    {
        let home = Home::new();
        let repo = project(&home);
        fs::write(
            repo.join(".git/toft/config.toml"),
            format!("[workspaces]\nkeep = \"{keep}\"\n[retry]\nmax_attempts = 1\n"),
        )
        .unwrap();
        add(&home, &repo, &["Work"]);
        let claim = home.toft(&repo, &["claim", "--ws", "--json"]).data();
        let path = PathBuf::from(claim["workspace"]["path"].as_str().unwrap());
        commit(&home, &path, "work.txt", "work\n");
        fs::write(path.join("loose.txt"), "loose\n").unwrap();
        let words: &[&str] =
            if outcome == "done" { &["finish", "--no-change", "x"] } else { &["finish", "failed", "-m", "no"] };
        let before = whole(&home, &path);
        home.toft(&repo, words).ok();
        assert_eq!(path.exists(), stays, "keep = {keep}, {outcome}");
        if !stays {
            home.toft(&repo, &["ws", "restore", claim["workspace"]["name"].as_str().unwrap()]).ok();
            assert_eq!(whole(&home, &path), before, "what was let go of comes back");
        }
    }
}

#[test]
fn a_clone_has_branches_of_its_own_and_the_same_store() {
    let (home, repo) = Home::with(project);
    home.run(&repo, "git", &["remote", "add", "origin", "ssh://example.invalid/api.git"]);
    let path = home.toft(&repo, &["ws", "create", "--name", "apart", "--clone", "-q"]).ok();
    let apart = PathBuf::from(path.trim());
    assert_eq!(home.run(&apart, "git", &["config", "remote.origin.url"]).trim(), "ssh://example.invalid/api.git");
    assert!(apart.join(".git").is_dir());
    let place = |dir: &Path| home.toft(dir, &["where", "--json"]).data();
    assert_eq!(place(&apart)["store"], place(&repo)["store"]);
    assert_eq!(place(&apart)["repository"], place(&repo)["repository"]);
    let id = add(&home, &apart, &["Seen from the clone"]);
    assert!(home.toft(&repo, &["ready"]).ok().contains(&id));
    commit(&home, &apart, "mine.txt", "in the clone only\n");
    fs::write(apart.join("a.txt"), "stash me\n").unwrap();
    home.run(&apart, "git", &["stash", "-q"]);
    home.run(&apart, "git", &["branch", "aside", "HEAD~1"]);
    fs::write(apart.join("loose.txt"), "loose\n").unwrap();
    let before = whole(&home, &apart);
    home.toft(&repo, &["ws", "rm", "apart"]).fails(5);
    home.toft(&repo, &["ws", "rm", "apart", "--rescue"]).ok();
    assert!(!apart.exists());
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    home.toft(&repo, &["ws", "restore", "apart"]).ok();
    assert_eq!(whole(&home, &apart), before);
    home.run(&apart, "git", &["rev-parse", "--verify", "refs/heads/aside"]);
    assert_eq!(place(&apart)["store"], place(&repo)["store"]);
    // A clone that points at a repository which does not know it is a repository of its own.
    let stranger = home.git("stranger");
    fs::create_dir(stranger.join(".git/toft")).unwrap();
    fs::write(stranger.join(".git/toft/parent"), repo.join(".git").display().to_string()).unwrap();
    assert_ne!(place(&stranger)["store"], place(&repo)["store"]);
}

#[test]
fn jujutsu_workspaces_are_put_away_as_commits() {
    let home = Home::new();
    home.run(home.path(), "jj", &["git", "init", "--colocate", "one"]);
    let repo = home.path().join("one");
    fs::write(repo.join("a.txt"), "one\n").unwrap();
    home.run(&repo, "jj", &["commit", "-m", "first", "--config=user.name=Ana", "--config=user.email=ana@example.org"]);
    home.toft(&repo, &["init"]).ok();
    let plot = create(&home, &repo, "side", &[]);
    assert!(plot.join("a.txt").is_file() && plot.join(".jj").is_dir());
    fs::write(plot.join("b.txt"), "work\n").unwrap();
    fs::write(plot.join("large.bin"), vec![7; 3 << 20]).unwrap();
    let before = snapshot(&repo.join("a.txt").parent().unwrap().join("a.txt").with_file_name("")).len();
    assert!(before > 0);
    home.toft(&repo, &["ws", "rm", "side"]).fails(5);
    home.toft(&repo, &["ws", "rm", "side", "--rescue"]).ok();
    assert!(!plot.exists());
    home.toft(&repo, &["ws", "restore", "side"]).ok();
    assert_eq!(fs::read_to_string(plot.join("b.txt")).unwrap(), "work\n");
    assert_eq!(fs::read(plot.join("large.bin")).unwrap(), vec![7; 3 << 20]);
}

#[test]
fn a_name_means_the_workspace_of_that_name_and_a_path_the_one_around_it() {
    let (home, repo) = Home::with(project);
    let id = add(&home, &repo, &["Somebody's"]);
    home.toft(&repo, &["claim", "--ws", "--as", "ann"]).ok();
    // A name that is also the beginning of an issue's id.
    let short = id[3..6].to_owned();
    let mine = create(&home, &repo, &short, &[]);
    assert_eq!(home.toft(&repo, &["ws", "path", &short]).ok().trim(), mine.display().to_string());
    fs::create_dir_all(mine.join("deep/er")).unwrap();
    for (dir, args) in [(mine.join("deep/er"), &["ws", "path"][..]), (mine.clone(), &["ws", "path", "."])] {
        assert_eq!(home.toft(&dir, args).ok().trim(), mine.display().to_string());
    }
    let with_slash = format!("{}/", mine.display());
    assert_eq!(home.toft(&repo, &["ws", "path", &with_slash]).ok().trim(), mine.display().to_string());
    // It goes before the issue, after it was removed too.
    fs::write(mine.join("mine.txt"), "mine\n").unwrap();
    home.toft(&repo, &["ws", "rm", &short, "--rescue"]).ok();
    assert!(!mine.exists(), "and not somebody's");
    home.toft(&repo, &["ws", "restore", &short]).ok();
    assert_eq!(fs::read_to_string(mine.join("mine.txt")).unwrap(), "mine\n");
    assert!(home.toft(&repo, &["ws", "path", &id]).ok().contains(&id));
    home.toft(&repo, &["ws", "path", "@", "--as", "nobody"]).fails(5);
    home.toft(&repo, &["ws", "create", "--name", "../x"]).fails(2);
    home.toft(&repo, &["ws", "create", "--name", "main"]).fails(5);
    // What it is finished with is the commit, not a word for it.
    let path = PathBuf::from(home.toft(&repo, &["ws", "path", &id]).ok().trim());
    commit(&home, &path, "done.txt", "done\n");
    home.toft(&path, &["finish", "--evidence", "HEAD", "--as", "ann"]).says("1 commit not landed");
    let head = home.run(&path, "git", &["rev-parse", "HEAD"]);
    assert!(home.toft(&repo, &["show", &id]).ok().contains(head.trim()));
}

#[test]
fn a_diff_is_of_the_agents_own_work_and_harmless_to_look_at() {
    let (home, repo) = Home::with_repository("api");
    fs::write(repo.join("a.txt"), "one two\n").unwrap();
    commit_all(&home, &repo, "a");
    home.toft(&repo, &["ws", "create", "--name", "w"]).ok();
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", "w"]).ok().trim());
    assert!(home.toft(&repo, &["show", "--diff", "w"]).ok().contains("w has changed nothing since"));
    fs::write(dir.join("a.txt"), "one \u{1b}[31mthree\u{202e}\n").unwrap();
    fs::write(dir.join("image"), [0u8, 1, 2]).unwrap();
    commit_all(&home, &dir, "mine");
    // What others did meanwhile is theirs, though the agent has taken it up.
    fs::write(repo.join("theirs.txt"), "theirs\n").unwrap();
    commit_all(&home, &repo, "theirs");
    let main = home.run(&repo, "git", &["rev-parse", "HEAD"]);
    home.run(&dir, "git", &["merge", "-q", "-m", "joined", main.trim()]);
    let diff = home.toft(&repo, &["show", "--diff", "w"]).ok();
    assert!(diff.contains("+one ") && diff.contains("three") && !diff.contains("theirs"), "{diff}");
    assert!(!diff.contains('\u{1b}') && !diff.contains('\u{202e}'), "{diff:?}");
    home.toft(&repo, &["show", "--diff", "w", "--words"]).says("[-two-]");
    let stat = home.toft(&repo, &["show", "--diff", "w", "--stat"]).ok();
    assert!(stat.contains("image  binary") && stat.contains("2 files, +1 -1"), "{stat}");
    let data = home.toft(&repo, &["show", "--diff", "w", "--json"]).data();
    assert_eq!(
        (data["files"][0]["path"].as_str(), data["files"][0]["added"].as_u64()),
        (Some("a.txt"), Some(1)),
        "{data}"
    );
    // In the workspace it needs no name.
    assert_eq!(home.toft(&dir, &["show", "--diff", "--stat"]).ok(), stat);
}
