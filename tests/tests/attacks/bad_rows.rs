//! One broken workspace is one bad row: `status`, `ws list` and `ws gc` say what is wrong with it and what helps, and
//! everything else works as ever.

use std::os::unix::fs::symlink;

use toft_stories::prelude::*;

/// Commands that delete; none of them is ever advice.
const DESTRUCTIVE: [&str; 7] = ["rm ", "ws rm", "ws gc", "--force", "prune", "reset", "clean"];

/// A repository in which three agents work, each in a workspace.
fn three(home: &Home) -> (PathBuf, Vec<PathBuf>) {
    let repo = home.repo("repo");
    fs::write(repo.join("a.txt"), "one\n").unwrap();
    commit_all(home, &repo, "files");
    let mut paths = Vec::new();
    for agent in ["ann", "bob", "cid"] {
        home.toft(&repo, &["add", &format!("work of {agent}")]).ok();
        paths.push(home.claim_workspace(&repo, &["--as", agent]));
    }
    (repo, paths)
}

fn named(rows: &Value, path: &Path) -> Value {
    let name = path.file_name().unwrap().to_str().unwrap();
    rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {rows}")).clone()
}

/// Everything that looks says what is wrong with `broken`, and nothing else of the others.
fn one_bad_row(home: &Home, repo: &Path, paths: &[PathBuf], broken: &Path, what: &str) -> String {
    let list = home.toft(repo, &["ws", "list", "--json"]).data();
    let row = named(&list, broken);
    assert!(row["trouble"].as_str().is_some_and(|trouble| trouble.contains(what)), "{what}: {row}");
    let help = row["help"].as_str().unwrap_or_else(|| panic!("no help: {row}")).to_owned();
    assert!(!DESTRUCTIVE.iter().any(|word| help.contains(word)), "{help}");
    for well in paths.iter().filter(|path| *path != broken) {
        let row = named(&list, well);
        assert!(row["trouble"].is_null() && row["survey"]["landed"] == "nothing", "{row}");
    }
    let status = home.toft(repo, &["status", "--json"]).data();
    assert_eq!(status["broken"].as_array().map(Vec::len), Some(1), "{status}");
    assert!(named(&status["broken"], broken)["trouble"].as_str().unwrap().contains(what));
    let gc = home.toft(repo, &["ws", "gc", "--json"]).data();
    let row = named(&gc, broken);
    assert!(row["gone"] == false && row["trouble"].as_str().is_some_and(|why| why.contains(what)), "{row}");
    assert_eq!(row["help"], help.as_str());
    for command in [&["status"][..], &["ws", "list"], &["ws", "gc"]] {
        home.toft(repo, command).says_all(&[what, &help]);
    }
    help
}

#[test]
fn a_workspace_without_its_link_or_gits_record_is_one_bad_row_and_the_advice_mends_it() {
    let (home, (repo, paths)) = Home::with(three);
    fs::write(paths[1].join("b.txt"), "work\n").unwrap();
    fs::remove_file(paths[1].join(".git")).unwrap();
    let help = one_bad_row(&home, &repo, &paths, &paths[1], "its .git file is gone");
    home.run(&repo, "sh", &["-c", &help]);
    let row = named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[1]);
    assert!(row["trouble"].is_null() && row["survey"]["untracked"] == 1, "{row}");
    // One that git has no record of.
    let name = paths[0].file_name().unwrap();
    fs::remove_dir_all(repo.join(".git/worktrees").join(name)).unwrap();
    one_bad_row(&home, &repo, &paths, &paths[0], "git's record of it");
    fs::remove_file(paths[0].join(".git")).unwrap();
    one_bad_row(&home, &repo, &paths, &paths[0], "git's record of it are gone");
}

#[test]
fn a_pipe_where_git_has_a_file_is_one_bad_row_and_nothing_waits_for_it() {
    let (home, (repo, paths)) = Home::with(three);
    let entry = repo.join(".git/worktrees").join(paths[1].file_name().unwrap());
    for file in ["HEAD", "commondir", "gitdir", "index"] {
        let (file, away) = (entry.join(file), entry.join("away"));
        fs::rename(&file, &away).unwrap();
        home.run(&repo, "mkfifo", &[file.to_str().unwrap()]);
        let begun = Instant::now();
        one_bad_row(&home, &repo, &paths, &paths[1], "it is a link, a pipe");
        let said = home.toft(&repo, &["ws", "create", "--name", "more"]);
        assert!(said.code == 0 || said.err.contains("it is a link, a pipe"), "{said:?}");
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing waits");
        fs::rename(&away, &file).unwrap();
    }
    let row = named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[1]);
    assert!(row["trouble"].is_null(), "{row}");
}

/// Git opens a file of rules in any directory; it would wait for a pipe without end.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_deep_in_a_workspace_is_one_bad_row_within_seconds() {
    let (home, (repo, paths)) = Home::with(three);
    fs::create_dir(paths[1].join("src")).unwrap();
    let pipe = paths[1].join("src/.gitignore");
    home.run(&repo, "mkfifo", &[pipe.to_str().unwrap()]);
    for command in [&["ws", "list", "--json"][..], &["status", "--json"], &["ws", "gc", "--json"]] {
        let begun = Instant::now();
        home.toft(&repo, command).ok();
        assert!(begun.elapsed() < Duration::from_secs(30), "{command:?} took {:?}", begun.elapsed());
    }
    let row = named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[1]);
    assert!(row["trouble"].to_string().contains("waited for something that does not come"), "{row}");
    fs::remove_file(pipe).unwrap();
    let row = named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[1]);
    assert!(row["trouble"].is_null(), "{row}");
}

#[test]
fn a_workspace_whose_link_names_another_repository_is_one_bad_row() {
    let (home, (repo, paths)) = Home::with(three);
    let other = home.git("other");
    fs::write(paths[2].join(".git"), format!("gitdir: {}/.git\n", other.display())).unwrap();
    let help = one_bad_row(&home, &repo, &paths, &paths[2], "names another repository");
    home.run(&repo, "sh", &["-c", &help]);
    assert!(named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[2])["trouble"].is_null());
    // A repository that an agent made in the place of its link.
    fs::remove_file(paths[2].join(".git")).unwrap();
    home.run(&paths[2], "git", &["init", "-q"]);
    one_bad_row(&home, &repo, &paths, &paths[2], "not the file that toft made");
}

#[test]
fn a_directory_that_is_gone_moved_or_replaced_is_one_bad_row() {
    let (home, (repo, paths)) = Home::with(three);
    let aside = paths[0].with_extension("moved");
    fs::rename(&paths[0], &aside).unwrap();
    let help = one_bad_row(&home, &repo, &paths, &paths[0], "its directory is gone");
    symlink("/", &paths[0]).unwrap();
    one_bad_row(&home, &repo, &paths, &paths[0], "a symbolic link is in its place");
    fs::remove_file(&paths[0]).unwrap();
    fs::create_dir(&paths[0]).unwrap();
    one_bad_row(&home, &repo, &paths, &paths[0], "its .git file is gone");
    fs::remove_dir(&paths[0]).unwrap();
    fs::rename(&aside, &paths[0]).unwrap();
    assert!(named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[0])["trouble"].is_null());
    assert!(help.starts_with("toft ws create "), "{help}");
    home.run(&repo, "git", &["worktree", "move", paths[1].to_str().unwrap(), aside.to_str().unwrap()]);
    let help = one_bad_row(&home, &repo, &paths, &paths[1], "its directory was moved");
    assert!(help.starts_with("toft ws create --adopt "), "{help}");
}

#[test]
fn a_directory_that_cannot_be_read_is_one_bad_row() {
    let (home, (repo, paths)) = Home::with(three);
    chmod(&paths[1], 0o000);
    if fs::read_dir(&paths[1]).is_ok() {
        // Root reads everything: nothing is broken for root.
        chmod(&paths[1], 0o755);
        assert!(home.toft(&repo, &["status", "--json"]).data()["broken"].as_array().unwrap().is_empty());
        return;
    }
    let help = one_bad_row(&home, &repo, &paths, &paths[1], "permission denied");
    home.run(&repo, "sh", &["-c", &help]);
    assert!(named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[1])["trouble"].is_null());
}

#[test]
fn a_mount_that_does_not_answer_is_one_bad_row() {
    if !may_mount() || Command::new("fusermount3").arg("-V").output().is_err() {
        return;
    }
    let (home, (repo, paths)) = Home::with(three);
    let _unmount = Unmount(&home);
    // A FUSE mount whose server is gone fails every look with ENOTCONN.
    let at = paths[2].clone();
    let kept = at.with_extension("kept");
    fs::rename(&at, &kept).unwrap();
    fs::create_dir(&at).unwrap();
    let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    let mounted = fuse.is_ok_and(|fuse| {
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "dead", "-o", options]).arg(&at).stdin(fuse);
        mount.status().is_ok_and(|status| status.success())
    });
    if !mounted {
        println!("skipped: FUSE cannot be mounted here");
        return;
    }
    one_bad_row(&home, &repo, &paths, &paths[2], "it cannot be read");
    let _ = Command::new("umount").arg("-l").arg(&at).status();
    fs::remove_dir(&at).unwrap();
    fs::rename(&kept, &at).unwrap();
    assert!(named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &at)["trouble"].is_null());
}

#[test]
fn a_row_of_the_store_that_cannot_be_read_is_one_bad_row_and_is_never_written_over() {
    let home = Home::new();
    let (repo, paths) = three(&home);
    let store = home.toft(&repo, &["where", "--json"]).data()["store"].as_str().map(PathBuf::from).unwrap();
    let id = named(&home.toft(&repo, &["ws", "list", "--json"]).data(), &paths[0])["id"].as_str().unwrap().to_owned();
    let change = format!(
        "import sqlite3\nc=sqlite3.connect({:?})\nc.execute(\"update workspaces set body='{{broken' where id='{id}'\")\nc.commit()",
        store.display().to_string()
    );
    home.run(&repo, "python3", &["-c", &change]);
    for command in [&["status"][..], &["ws", "list"], &["ws", "gc"]] {
        let said = home.toft(&repo, command).ok();
        assert!(said.contains(&id) && said.contains("cannot be read"), "{command:?}: {said}");
        assert!(said.contains(paths[1].file_name().unwrap().to_str().unwrap()), "{said}");
    }
    assert_ne!(home.toft(&repo, &["ws", "keep", "--off", &id]).code, 0);
    assert_ne!(home.toft(&repo, &["ws", "rm", &id]).code, 0);
    assert!(home.toft(&repo, &["ws", "list"]).ok().contains("cannot be read"));
}

#[test]
fn whatever_an_agent_does_to_its_workspace_the_others_are_seen() {
    let (home, (repo, paths)) = Home::with(three);
    let ruin = [
        "rm -rf .git; echo x > y; git add -A; git commit -qm wrong",
        "rm -rf \"$PWD\"",
        "C=$(git rev-parse --git-common-dir); git -C \"$C\" worktree prune; rm -rf \"$(git rev-parse --git-dir)\"",
        "echo x > y; mv \"$PWD\" \"$PWD.moved\"; ln -s / \"$PWD\"",
        "rm .git; mkdir .git",
    ];
    for (n, command) in ruin.iter().enumerate() {
        home.toft(&repo, &["add", &format!("ruined {n}")]).ok();
        let path = home.claim_workspace(&repo, &["--as", &format!("r{n}")]);
        let _ = home.command(&path, "sh", &["-c", command]).output().unwrap();
    }
    let status = home.toft(&repo, &["status", "--json", "--limit", "50"]).data();
    assert_eq!(status["broken"].as_array().map(Vec::len), Some(ruin.len()), "{status}");
    let list = home.toft(&repo, &["ws", "list", "--json"]).data();
    let (broken, well): (Vec<_>, Vec<_>) = list.as_array().unwrap().iter().partition(|row| row["trouble"].is_string());
    assert_eq!((broken.len(), well.len()), (ruin.len(), paths.len()), "{list}");
    assert!(broken.iter().all(|row| row["help"].is_string()), "{list}");
    let gc = home.toft(&repo, &["ws", "gc", "--json"]).data();
    assert!(gc.as_array().unwrap().iter().all(|row| row["gone"] == false), "{gc}");
}

#[test]
fn a_workspace_whose_repository_is_gone_is_one_bad_row_among_all_repositories() {
    let mut home = Home::new();
    home.use_store("global");
    let mut paths = Vec::new();
    for name in ["one", "two"] {
        let repo = home.repo(name);
        home.toft(&repo, &["add", &format!("work in {name}")]).ok();
        paths.push(home.claim_workspace(&repo, &["--as", name]));
    }
    fs::rename(home.path().join("one"), home.path().join("gone")).unwrap();
    let here = home.path().join("two");
    let said = home.toft(&here, &["status", "--all-repos"]).ok();
    let name = |n: usize| paths[n].file_name().unwrap().to_str().unwrap();
    let line = said.lines().find(|line| line.contains("its repository is not at")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(name(0)) && said.contains(name(1)), "{said}");
    let data = home.toft(&here, &["status", "--all-repos", "--json"]).data();
    let broken: usize = data.as_array().unwrap().iter().map(|row| row["broken"].as_array().map_or(0, Vec::len)).sum();
    assert_eq!(broken, 1, "{data}");
    assert!(home.toft(&here, &["ws", "list"]).ok().contains("clean, nothing new"));
}
