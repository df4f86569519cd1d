//! Every version control system, with its real program, gives a task a workspace of its own and loses nothing in it. A new
//! system (`toft-vcs/src/workspace/system/`) gets a row here.
#![cfg(unix)]

use toft_stories::prelude::*;

/// A system: how its own program does what a user does.
struct System {
    /// Makes a repository with `a.txt` in its first commit.
    init: fn(&Home) -> PathBuf,
    /// Commits everything in a checkout.
    commit: fn(&Home, &Path, &str),
    /// The commit that a checkout is on.
    commit_id: fn(&Home, &Path) -> String,
    /// The name of that commit in the system's own language.
    newest: &'static str,
    /// What its program lists as checkouts of the repository, if it keeps a list.
    listed: Option<fn(&Home, &Path) -> String>,
    /// Uncommitted work can be saved as a rescue.
    rescues: bool,
}

fn conforms(system: &System) {
    let home = Home::new();
    let repo = (system.init)(&home);
    home.toft(&repo, &["init"]).ok();
    let id = home.toft(&repo, &["add", "Write b", "-q"]).ok().trim().to_owned();
    let before = tracked(&repo);
    let claim = home.toft(&repo, &["claim", &id, "--ws", "--as", "ann", "--json"]).data();
    let dir = PathBuf::from(claim["workspace"]["path"].as_str().unwrap());
    assert_ne!(dir, repo);
    assert_eq!(fs::read_to_string(dir.join("a.txt")).unwrap(), "one\n");
    assert_eq!(home.toft(&dir, &["show", "@", "-q", "--as", "ann"]).ok().trim(), claim["task"]["id"].as_str().unwrap());

    // What is not committed is seen, and not removed.
    fs::write(dir.join("b.txt"), "half\n").unwrap();
    let listed = home.toft(&repo, &["ws", "list", "--json"]).data();
    let seen = &listed[0]["survey"];
    assert_eq!(seen["changed"].as_u64().unwrap() + seen["untracked"].as_u64().unwrap(), 1, "{seen}");
    home.toft(&repo, &["finish", &id, "release", "--as", "ann"]).ok();
    home.toft(&repo, &["ws", "rm", &id]).fails(5);
    assert_eq!(fs::read_to_string(dir.join("b.txt")).unwrap(), "half\n");
    match system.rescues {
        true => {
            home.toft(&repo, &["ws", "rm", &id, "--rescue"]).ok();
            assert!(!dir.exists());
            home.toft(&repo, &["ws", "restore", &id]).ok();
        }
        false => {
            home.toft(&repo, &["ws", "rm", &id, "--rescue"]).fails(5);
        }
    }
    assert_eq!(fs::read_to_string(dir.join("b.txt")).unwrap(), "half\n");

    // Work is finished with the commit that the system's own program made.
    let again = home.toft(&repo, &["claim", &id, "--ws", "--as", "bea", "--json"]).data();
    assert_eq!(again["workspace"]["path"].as_str().unwrap(), dir.to_str().unwrap(), "the next agent goes on there");
    (system.commit)(&home, &dir, "b is written");
    home.toft(&dir, &["finish", "--evidence", system.newest, "--as", "bea"]).ok();
    let shown = home.toft(&repo, &["show", &id, "--json"]).data().to_string();
    let commit = (system.commit_id)(&home, &dir);
    assert!(shown.contains(&commit), "{commit}: {shown}");
    assert_eq!(tracked(&repo), before, "the user's own checkout is as it was");

    // Its change is seen, committed or not.
    fs::write(dir.join("a.txt"), "one\ntwo\n").unwrap();
    let diff = home.toft(&repo, &["show", "--diff", &id]).ok();
    assert!(diff.contains("diff --git a/b.txt b/b.txt") && diff.contains("+half") && diff.contains("+two"), "{diff}");
    home.toft(&repo, &["show", "--diff", &id, "--stat"]).says_all(&["a.txt  +1 -0", "2 files, +2 -0"]);
    fs::write(dir.join("a.txt"), "one\n").unwrap();

    // A clean one goes, and so does its entry.
    let name = dir.file_name().unwrap().to_str().unwrap();
    if let Some(listed) = system.listed {
        assert!(listed(&home, &repo).contains(name));
    }
    home.toft(&repo, &["ws", "rm", "--landed", &id]).ok();
    assert!(!dir.exists());
    if let Some(listed) = system.listed {
        assert!(!listed(&home, &repo).contains(name));
    }
    assert_eq!(tracked(&repo), before);
}

/// The user's files, without those of version control.
fn tracked(repo: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let hidden = |path: &Path| path.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'));
    let files = snapshot(repo).into_iter();
    files.filter(|(path, _)| !hidden(path.strip_prefix(repo).unwrap_or(path))).collect()
}

#[test]
fn git_gives_a_task_a_workspace_of_its_own() {
    conforms(&System {
        init: |home| {
            let repo = home.git("work");
            fs::write(repo.join("a.txt"), "one\n").unwrap();
            commit_all(home, &repo, "first");
            repo
        },
        commit: |home, dir, message| {
            commit_all(home, dir, message);
        },
        commit_id: |home, dir| home.run(dir, "git", &["rev-parse", "HEAD"]).trim().to_owned(),
        newest: "HEAD",
        listed: Some(|home, repo| home.run(repo, "git", &["worktree", "list"])),
        rescues: true,
    });
}

#[test]
fn jujutsu_gives_a_task_a_workspace_of_its_own() {
    const AUTHOR: [&str; 2] = ["--config=user.name=Ana", "--config=user.email=ana@example.org"];
    conforms(&System {
        init: |home| {
            home.run(home.path(), "jj", &["git", "init", "--colocate", "work"]);
            let repo = home.path().join("work");
            fs::write(repo.join("a.txt"), "one\n").unwrap();
            home.run(&repo, "jj", &[&["commit", "-m", "first"][..], &AUTHOR].concat());
            repo
        },
        commit: |home, dir, message| {
            home.run(dir, "jj", &[&["commit", "-m", message][..], &AUTHOR].concat());
        },
        commit_id: |home, dir| {
            home.run(dir, "jj", &["log", "--no-graph", "-r", "@-", "-T", "commit_id"]).trim().to_owned()
        },
        newest: "@-",
        listed: Some(|home, repo| home.run(repo, "jj", &["workspace", "list"])),
        rescues: true,
    });
}

#[test]
fn mercurial_gives_a_task_a_workspace_of_its_own() {
    conforms(&System {
        init: |home| {
            home.run(home.path(), "hg", &["init", "work"]);
            let repo = home.path().join("work");
            fs::write(repo.join("a.txt"), "one\n").unwrap();
            home.run(&repo, "hg", &["commit", "-q", "-A", "-m", "first"]);
            repo
        },
        commit: |home, dir, message| {
            home.run(dir, "hg", &["commit", "-q", "-A", "-m", message]);
        },
        commit_id: |home, dir| home.run(dir, "hg", &["log", "-r", ".", "-T", "{node}"]).trim().to_owned(),
        newest: ".",
        listed: None,
        rescues: false,
    });
}
