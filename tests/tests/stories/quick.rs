//! Many workspaces: how often git is asked, sizes and ages, branches with names,
//! and deleting after the answer.

use std::time::SystemTime;

use toft_stories::prelude::*;
use toft_stories::workspaces::{busy_workspaces, commit_all, users_own};

/// From now on git notes every run in a file, and takes this long for each `status`.
fn watched_git(home: &mut Home, pause: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (bin, log) = (home.path().join("watched"), home.path().join("runs"));
    fs::create_dir(&bin).unwrap();
    let real = home.run(home.path(), "sh", &["-c", "command -v git"]);
    let wait = format!("case \" $* \" in *\" status \"*) sleep {pause};; esac");
    let script = format!("#!/bin/sh\necho \"$*\" >> {}\n{wait}\nexec {} \"$@\"\n", log.display(), real.trim());
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), home.variable("PATH"));
    home.set("PATH", &path);
    log
}

#[test]
fn a_list_asks_git_once_for_each_workspace() {
    let (mut home, (repo, paths)) = Home::with(|home| busy_workspaces(home, 50, 5));
    home.toft(&repo, &["ws", "list"]).ok();
    let log = watched_git(&mut home, "0");
    home.toft(&repo, &["ws", "list"]).ok();
    let runs = fs::read_to_string(&log).unwrap();
    assert_eq!(runs.lines().filter(|line| line.contains(" status ")).count(), paths.len(), "{runs}");
    assert!(runs.lines().count() <= paths.len() + 3, "{runs}");
    // One more commit asks a little more, and only for that one and its pairs.
    fs::write(paths[0].join("more.txt"), "more\n").unwrap();
    commit_all(&home, &paths[0], "more");
    fs::write(&log, "").unwrap();
    home.toft(&repo, &["ws", "list"]).ok();
    let runs = fs::read_to_string(&log).unwrap();
    assert!(runs.lines().count() <= paths.len() + 16, "{runs}");
}

#[test]
fn what_is_remembered_never_hides_what_changed() {
    let (home, (repo, paths)) = Home::with(|home| busy_workspaces(home, 200, 3));
    let survey = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        home.toft(&repo, &["ws", "list", "--json"])
            .data()
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["name"] == name)
            .unwrap()["survey"]
            .clone()
    };
    let path = &paths[1];
    assert_eq!(survey(path)["changed"], 1);
    // The same size, in the same second.
    for n in 0..5 {
        fs::write(path.join("src/d0/f7.txt"), format!("file {n}\n").repeat(8)).unwrap();
        let seen = survey(path);
        let git = home.run(path, "git", &["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"]);
        assert_eq!(seen["changed"], git.lines().count(), "{n}: {git}");
    }
    fs::write(path.join("src/d0/f7.txt"), "file 7\n".repeat(8)).unwrap();
    home.run(path, "git", &["add", "src/d0/f7.txt"]);
    assert_eq!(survey(path)["staged"], 0, "as it was committed: {}", survey(path));
    fs::write(path.join("src/d0/f8.txt"), "staged\n").unwrap();
    home.run(path, "git", &["add", "src/d0/f8.txt"]);
    assert_eq!(survey(path)["staged"], 1);
    // A file that git is told not to look at.
    home.run(path, "git", &["update-index", "--assume-unchanged", "src/d0/f9.txt"]);
    fs::write(path.join("src/d0/f9.txt"), "unseen\n").unwrap();
    assert_eq!(survey(path)["changed"], 2);
    commit_all(&home, path, "all");
    let seen = survey(path);
    assert_eq!((&seen["ahead"], &seen["staged"]), (&1.into(), &0.into()), "{seen}");
    home.run(path, "git", &["commit", "-q", "--amend", "-m", "all of it"]);
    assert_eq!(survey(path)["dropped"], 1);
    home.run(path, "git", &["stash", "-q", "--include-untracked"]);
    let branch = home.run(path, "git", &["branch", "--show-current"]);
    home.run(&repo, "git", &["merge", "-q", "--no-edit", branch.trim()]);
    assert_eq!(survey(path)["landed"], "merged");
}

#[test]
fn an_edit_of_the_same_size_in_the_second_of_a_commit_is_seen_and_never_removed() {
    let (home, (repo, paths)) = Home::with(|home| busy_workspaces(home, 20, 1));
    let (path, name) = (&paths[0], paths[0].file_name().unwrap().to_str().unwrap());
    let file = path.join("src/d0/f7.txt");
    // Git compares times in whole seconds: everything here is of one second, so only the content tells the edit.
    let in_one_second = |n: u32| {
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        std::thread::sleep(Duration::from_millis(1_000 - u64::from(start.subsec_millis())));
        fs::write(&file, format!("first {n}\n")).unwrap();
        let before = fs::metadata(&file).unwrap().ctime();
        home.run(path, "git", &["commit", "-qam", "first"]);
        fs::write(&file, format!("later {n}\n")).unwrap();
        fs::metadata(&file).unwrap().ctime() == before
    };
    assert!((0..20).any(in_one_second), "twenty tries, and none within a second");
    // The second of the commit is over.
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(home.toft(&repo, &["ws", "list", name, "--json"]).data()["survey"]["changed"], 1);
    home.toft(&repo, &["finish", "--as", "a0", "release"]).ok();
    home.toft(&repo, &["ws", "rm", "--landed", name]).fails(5);
    assert!(fs::read_to_string(&file).unwrap().starts_with("later"));
}

#[test]
fn a_damaged_memory_is_no_memory() {
    let (home, (repo, paths)) = Home::with(|home| busy_workspaces(home, 100, sized(3, 20)));
    let first = home.toft(&repo, &["status", "--json"]).data();
    assert!(first["working"].as_array().unwrap().len() == paths.len().min(20), "{first}");
    let list = home.toft(&repo, &["ws", "list", "--json"]).data();
    assert!(list.as_array().unwrap().iter().all(|row| row["looked"].is_string() && row["bytes"].is_u64()), "{list}");
    for entry in fs::read_dir(repo.join(".git/toft/looks")).unwrap() {
        let path = entry.unwrap().path();
        let file = if path.is_dir() { path.join("memory.json") } else { path };
        fs::write(file, "{damaged").unwrap();
    }
    assert_eq!(home.toft(&repo, &["ws", "list"]).code, 0);
    assert_eq!(home.toft(&repo, &["status"]).code, 0);
}

#[test]
fn gc_answers_before_it_deletes_and_finds_again_what_was_left() {
    let home = Home::new();
    let count = sized(6, 100);
    let (repo, paths) = busy_workspaces(&home, sized(300, 5_000), count);
    for n in 0..count {
        home.toft(&repo, &["finish", "release", "--as", &format!("a{n}")]).ok();
    }
    let root = paths[0].parent().unwrap().to_owned();
    let own = users_own(&home, &repo);
    let gone = home.toft(&repo, &["ws", "gc", "--older-than", "0s", "--json"]).data();
    assert!(gone.as_array().unwrap().iter().all(|row| row["gone"] == true), "{gone}");
    assert!(paths.iter().all(|path| !path.exists()));
    assert_eq!(users_own(&home, &repo), own);
    // Everything comes back, whatever is still being deleted.
    let name = paths[1].file_name().unwrap().to_str().unwrap();
    home.toft(&repo, &["ws", "restore", name]).ok();
    assert_eq!(fs::read_to_string(paths[1].join("new1.txt")).unwrap(), "new\n");
    // What a killed sweep left is deleted by the next.
    let left = root.join(".trash-1.gone-ws_left");
    fs::create_dir_all(left.join("deep")).unwrap();
    fs::write(left.join("deep/file"), "left").unwrap();
    assert!(!home.toft(&repo, &["ws", "list"]).ok().contains(".trash-"));
    home.toft(&repo, &["ws", "gc"]).ok();
    let waiting = || {
        let names = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".trash-") || name.starts_with(".gone-")).count()
    };
    until(60, "what is left is deleted", || waiting() == 0);
}

#[test]
fn branches_are_called_after_the_issue_and_its_title() {
    let (home, repo) = Home::with_repository("repo");
    let made = home.toft(&repo, &["add", "Pin the Orders schema: v2!", "--json"]).data();
    let id = made["id"].as_str().or_else(|| made[0]["id"].as_str()).unwrap().to_owned();
    let claim = home.toft(&repo, &["claim", "--ws", "--as", "ann", "--json"]).data();
    let (workspace, short) = (&claim["workspace"], &id[..id.find('-').unwrap() + 5]);
    assert_eq!(workspace["branch"], format!("toft/{short}-pin-the-orders-schema-v2"));
    let path = workspace["path"].as_str().unwrap();
    assert_eq!(
        home.run(Path::new(path), "git", &["branch", "--show-current"]).trim(),
        workspace["branch"].as_str().unwrap()
    );
    let shown = home.toft(&repo, &["show", &id, "--json"]).data();
    assert_eq!((&shown["workspace"]["path"], &shown["workspace"]["branch"]), (&path.into(), &workspace["branch"]));
    assert!(home.toft(&repo, &["show", &id]).ok().contains(path));
    // Another name is the branch's name too; one that is taken is not taken away.
    let dir = home.toft(&repo, &["ws", "create", "--name", "mine", "-q"]).ok();
    assert_eq!(home.run(Path::new(dir.trim()), "git", &["branch", "--show-current"]).trim(), "mine");
}

#[test]
fn a_list_has_size_age_and_total_and_the_shell_goes_there() {
    let mut home = Home::new();
    home.toft_on_path();
    let (repo, paths) = busy_workspaces(&home, 150, 2);
    let text = home.toft(&repo, &["ws", "list"]).ok();
    assert!(text.lines().any(|line| line.starts_with("total: 2 workspaces, ")), "{text}");
    assert!(text.lines().take(2).all(|line| line.contains("just now, ") && line.ends_with('B')), "{text}");
    let name = paths[0].file_name().unwrap().to_str().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let function = home.toft(&repo, &["setup", "shell", shell]).ok();
        let go = format!("{function}\ntcd {name} && pwd");
        let Ok(output) = home.command(&repo, shell, &["-c", &go]).output() else {
            println!("skipped: no {shell}");
            continue;
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), paths[0].to_str().unwrap(), "{shell}: {output:?}");
        let nowhere = format!("{function}\ntcd no-such-thing; pwd");
        let output = home.command(&repo, shell, &["-c", &nowhere]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains(repo.to_str().unwrap()), "{shell}: {output:?}");
    }
}

#[test]
fn a_checkout_of_the_users_own_can_be_unregistered_and_stays_as_it_is() {
    let (home, repo) = Home::with_repository("repo");
    fs::write(repo.join("mine.txt"), "mine\n").unwrap();
    home.toft(&repo, &["add", "in place"]).ok();
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\nmost = 1\n").unwrap();
    let id = home.toft(&repo, &["list", "--json"]).data()[0]["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["ws", "create", &id, "--in-place"]).ok();
    // It takes no room.
    home.toft(&repo, &["ws", "create", "--name", "other"]).ok();
    home.toft(&repo, &["ws", "create", "--name", "third"]).refuses(5, "there are 1 workspaces, and the maximum is 1");
    // Nothing is wrong with it.
    let listed = home.toft(&repo, &["ws", "list"]).ok();
    assert!(!listed.contains("not the one") && !listed.contains("worktrees of its own"), "{listed}");
    let own = users_own(&home, &repo);
    assert_eq!(home.toft(&repo, &["ws", "rm", &id, "--json"]).data()[0]["gone"], true);
    assert_eq!(users_own(&home, &repo), own);
    assert_eq!(fs::read_to_string(repo.join("mine.txt")).unwrap(), "mine\n");
    assert!(!home.toft(&repo, &["ws", "list"]).ok().contains(&id));
}

#[test]
fn branches_go_with_what_has_landed_and_an_old_name_starts_fresh() {
    let (home, repo) = Home::with_repository("repo");
    fs::write(repo.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    commit_all(&home, &repo, "base");
    let branches = || home.run(&repo, "git", &["branch", "--format=%(refname:short)"]);
    // Taken down before it landed: the branch stays; once it has landed the next gc takes it.
    for (name, squash) in [("merged", false), ("squashed", true)] {
        let dir = PathBuf::from(home.toft(&repo, &["ws", "create", "--name", name, "-q"]).ok().trim());
        fs::write(dir.join(format!("{name}.txt")), "work\n").unwrap();
        commit_all(&home, &dir, name);
        let head = home.run(&dir, "git", &["rev-parse", "HEAD"]);
        home.toft(&repo, &["ws", "rm", name, "--rescue"]).ok();
        assert!(branches().lines().any(|line| line == name));
        home.toft(&repo, &["ws", "gc"]).ok();
        assert!(branches().lines().any(|line| line == name), "not landed yet");
        match squash {
            true => {
                home.run(&repo, "git", &["merge", "-q", "--squash", name]);
                commit_all(&home, &repo, "squashed");
            }
            false => drop(home.run(&repo, "git", &["merge", "-q", "--no-ff", "--no-edit", name])),
        }
        home.toft(&repo, &["ws", "gc"]).ok();
        assert!(!branches().lines().any(|line| line == name), "{}", branches());
        let kept = home.run(&repo, "git", &["for-each-ref", "--contains", head.trim()]);
        assert!(!kept.is_empty(), "its commits are still reachable");
    }
    // Under an old name whose work has landed: a new branch from where main is now, with a log of its own.
    let dir = PathBuf::from(home.toft(&repo, &["ws", "create", "--name", "again", "-q"]).ok().trim());
    fs::write(dir.join("again.txt"), "work\n").unwrap();
    commit_all(&home, &dir, "again");
    home.toft(&repo, &["ws", "rm", "again", "--rescue"]).ok();
    home.run(&repo, "git", &["merge", "-q", "--squash", "again"]);
    commit_all(&home, &repo, "squashed");
    let dir = PathBuf::from(home.toft(&repo, &["ws", "create", "--name", "again", "-q"]).ok().trim());
    let main = home.run(&repo, "git", &["rev-parse", "main"]);
    assert_eq!(home.run(&dir, "git", &["rev-parse", "HEAD"]), main);
    assert_eq!(home.run(&dir, "git", &["reflog", "show", "again"]).lines().count(), 1);
    let row = home.toft(&repo, &["ws", "list", "again", "--json"]).data();
    assert_eq!((&row["survey"]["landed"], &row["survey"]["dropped"]), (&"nothing".into(), &0.into()), "{row}");
}
