//! Ways in which work was lost once, or nearly: each is told here so that it does not happen again.

use toft_stories::kept::create;
use toft_stories::prelude::*;

fn project(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    fs::create_dir(repo.join("d")).unwrap();
    for name in ["a", "d/f", "d/g"] {
        fs::write(repo.join(name), format!("{name}\n")).unwrap();
    }
    fs::write(repo.join(".gitignore"), "ig/\n.env\nnode_modules/\n").unwrap();
    commit_all(home, &repo, "files");
    repo
}

fn commit(home: &Home, dir: &Path, file: &str) -> String {
    fs::write(dir.join(file), format!("{file}\n")).unwrap();
    home.run(dir, "git", &["add", file]);
    home.run(dir, "git", &["commit", "-q", "-m", file]);
    home.run(dir, "git", &["rev-parse", "HEAD"]).trim().to_owned()
}

/// Only refs hold on to anything after this.
fn forget(home: &Home, repo: &Path) {
    home.run(repo, "git", &["reflog", "expire", "--expire=now", "--all"]);
    home.run(repo, "git", &["gc", "-q", "--prune=now"]);
}

fn keeps(home: &Home, repo: &Path, commit: &str) {
    forget(home, repo);
    home.run(repo, "git", &["cat-file", "-e", commit]);
}

#[test]
fn a_branch_is_not_its_own_landing_and_a_users_branch_is_not_ours() {
    let (home, repo) = Home::with(project);
    home.run(&repo, "git", &["branch", "feature"]);
    let plot = create(&home, &repo, "feature", &["--base", "feature"]);
    let work = commit(&home, &plot, "work");
    home.toft(&repo, &["ws", "rm", "feature"]).fails(5);
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    assert_eq!(home.run(&repo, "git", &["rev-parse", "refs/heads/feature"]).trim(), work);
    home.run(&repo, "git", &["branch", "mine"]);
    home.toft(&repo, &["ws", "create", "--name", "mine"]).ok();
    home.toft(&repo, &["ws", "rm", "mine"]).ok();
    home.run(&repo, "git", &["rev-parse", "--verify", "refs/heads/mine"]);
    home.run(&repo, "git", &["worktree", "add", "-q", "../by-hand"]);
    home.toft(&repo, &["ws", "create", "--adopt", "../by-hand"]).ok();
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    assert!(home.path().join("by-hand").is_dir(), "what somebody made by hand stays until they say otherwise");
}

#[test]
fn gc_leaves_what_is_being_made_and_a_second_request_waits_for_the_first() {
    let (home, repo) = Home::with(project);
    let go = home.path().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    home.configure(format!("[workspaces.setup]\nrun = [\"{wait}\"]\n"));
    let being_made = |count: usize| {
        let making = || {
            let rows = home.toft(&repo, &["ws", "list", "--json"]).data();
            rows.as_array().unwrap().iter().filter(|row| row["state"] == "provisioning").count()
        };
        until(60, "it is being made", || making() >= count);
    };
    let start = |args: &[&str]| home.command(&repo, toft_bin(), args).stdout(Stdio::piped()).spawn().unwrap();
    let first = start(&["ws", "create", "--name", "live", "-q"]);
    being_made(1);
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).says("another command is creating it");
    fs::write(&go, "").unwrap();
    let path = String::from_utf8(first.wait_with_output().unwrap().stdout).unwrap();
    assert!(Path::new(path.trim()).join("a").is_file());
    fs::remove_file(&go).unwrap();
    let id = home.toft(&repo, &["add", "Shared", "-q"]).ok().trim().to_owned();
    let first = start(&["claim", "--ws", "--json"]);
    being_made(1);
    let second = start(&["ws", "create", &id, "-q"]);
    fs::write(&go, "").unwrap();
    let claim = first.wait_with_output().unwrap().stdout;
    let claim: serde_json::Value = serde_json::from_slice(&claim).unwrap();
    let path = PathBuf::from(claim["data"]["workspace"]["path"].as_str().unwrap());
    fs::write(path.join("mywork"), "mine\n").unwrap();
    second.wait_with_output().unwrap();
    assert_eq!(fs::read_to_string(path.join("mywork")).unwrap(), "mine\n");
}

#[test]
fn a_layer_is_mounted_once_however_many_ask_and_mounts_inside_are_not_reached_through() {
    let (home, repo) = Home::with(project);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"always\"\n").unwrap();
    let x = create(&home, &repo, "x", &[]);
    home.run(home.path(), "umount", &[x.to_str().unwrap()]);
    let asking: Vec<_> = (0..8).map(|_| home.start(&repo, &["ws", "path", "x"])).collect();
    for mut one in asking {
        assert!(one.wait().unwrap().success());
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert_eq!(mounts.lines().filter(|line| line.split(' ').nth(1) == x.to_str()).count(), 1);
    // Files written below while it is away are seen, and stay.
    home.run(home.path(), "umount", &[x.to_str().unwrap()]);
    fs::write(x.join("stray"), "stray\n").unwrap();
    home.toft(&repo, &["ws", "rm", "x"]).ok();
    let kept = x.with_file_name("x.unmounted-1");
    assert_eq!(fs::read_to_string(kept.join("stray")).unwrap(), "stray\n");
    // A directory of somebody else's, mounted inside.
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"never\"\n").unwrap();
    let y = create(&home, &repo, "y", &[]);
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("t"), "theirs\n").unwrap();
    fs::create_dir_all(y.join("ig/m")).unwrap();
    home.run(home.path(), "mount", &["--bind", outside.to_str().unwrap(), y.join("ig/m").to_str().unwrap()]);
    home.toft(&repo, &["ws", "rm", "y", "--rescue"]).refuses(5, "mounted");
    assert_eq!(fs::read_to_string(outside.join("t")).unwrap(), "theirs\n");
}

#[test]
fn what_is_in_its_place_now_is_not_taken_for_the_workspace() {
    let (home, repo) = Home::with(project);
    let x = create(&home, &repo, "x", &[]);
    fs::remove_dir_all(&x).unwrap();
    home.run(home.path(), "git", &["clone", "-q", repo.to_str().unwrap(), x.to_str().unwrap()]);
    commit(&home, &x, "theirs");
    home.toft(&repo, &["ws", "rm", "x", "--rescue"]).fails(5);
    assert!(x.join("theirs").is_file());
    // A clone that says its files are elsewhere.
    let c = create(&home, &repo, "c", &["--clone"]);
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    home.run(&c, "git", &["config", "core.worktree", elsewhere.to_str().unwrap()]);
    fs::write(c.join("precious"), "precious\n").unwrap();
    home.toft(&repo, &["ws", "rm", "c"]).fails(5);
    assert!(c.join("precious").is_file());
}

#[test]
fn commits_that_hardly_anything_knows_are_put_away() {
    let (home, repo) = Home::with(project);
    // Of a checkout's own refs, of a branch without a commit, stashed by a rebase in the middle.
    let x = create(&home, &repo, "x", &[]);
    home.run(&x, "git", &["checkout", "-q", "--detach"]);
    let kept = commit(&home, &x, "kept");
    home.run(&x, "git", &["update-ref", "refs/worktree/keep", "HEAD"]);
    home.run(&x, "git", &["switch", "-q", "x"]);
    home.toft(&repo, &["ws", "rm", "x"]).ok();
    keeps(&home, &repo, &kept);
    let y = create(&home, &repo, "y", &[]);
    home.run(&y, "git", &["checkout", "-q", "--detach"]);
    commit(&home, &y, "left");
    home.run(&y, "git", &["switch", "-q", "--orphan", "new"]);
    home.toft(&repo, &["ws", "rm", "y", "--rescue"]).fails(5);
    let z = create(&home, &repo, "z", &[]);
    fs::write(z.join("a"), "theirs\n").unwrap();
    home.run(&z, "git", &["commit", "-q", "-a", "-m", "theirs"]);
    fs::write(repo.join("a"), "ours\n").unwrap();
    home.run(&repo, "git", &["commit", "-q", "-a", "-m", "ours"]);
    fs::write(z.join("d/f"), "not committed\n").unwrap();
    let stopped = home.command(&z, "git", &["rebase", "--autostash", "main"]).output().unwrap();
    assert!(!stopped.status.success());
    home.toft(&repo, &["ws", "rm", "z", "--rescue"]).ok();
    forget(&home, &repo);
    home.toft(&repo, &["ws", "restore", "z"]).ok();
    home.run(&z, "git", &["rebase", "--abort"]);
    assert_eq!(fs::read_to_string(z.join("d/f")).unwrap(), "not committed\n");
}

#[test]
fn odd_files_come_back_or_keep_their_workspace() {
    let (home, repo) = Home::with(project);
    let x = create(&home, &repo, "x", &[]);
    // A tracked directory that became a link to elsewhere, whose files have odd permissions.
    let big = home.path().join("big");
    fs::rename(x.join("d"), &big).unwrap();
    chmod(&big.join("f"), 0o600);
    std::os::unix::fs::symlink(&big, x.join("d")).unwrap();
    fs::create_dir(x.join("t")).unwrap();
    fs::create_dir(x.join("t/.GIT")).unwrap();
    fs::write(x.join("t/.GIT/f"), "a name like any other\n").unwrap();
    fs::write(x.join("large"), vec![b'x'; 70 << 20]).unwrap();
    let before = whole(&home, &x);
    home.toft(&repo, &["ws", "rm", "x", "--rescue"]).ok();
    home.toft(&repo, &["ws", "restore", "x"]).ok();
    assert_eq!(whole(&home, &x).differences(&before), Vec::<String>::new());
    let y = create(&home, &repo, "y", &[]);
    fs::remove_file(y.join("a")).unwrap();
    home.run(&y, "mkfifo", &["a"]);
    home.toft(&repo, &["ws", "rm", "y", "--rescue"]).refuses(5, "neither a file nor a link");
    let z = create(&home, &repo, "z", &[]);
    home.run(&z, "git", &["init", "-q", "--bare", "ig/b.git"]);
    home.toft(&repo, &["ws", "rm", "z", "--rescue"]).ok();
    home.toft(&repo, &["ws", "restore", "z"]).ok();
    assert_eq!(home.run(&z.join("ig/b.git"), "git", &["rev-parse", "--is-bare-repository"]), "true\n");
}

#[test]
fn setting_up_writes_through_no_link_and_its_own_links_are_no_work() {
    let (home, repo) = Home::with(project);
    let victim = home.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::create_dir(repo.join("p")).unwrap();
    fs::write(repo.join("p/evil"), "evil\n").unwrap();
    fs::create_dir(repo.join("node_modules")).unwrap();
    let setup = "[workspaces.setup]\ncopy = [\"p/evil\"]\nlink = [\"node_modules\"]\n";
    fs::write(repo.join(".git/toft/config.toml"), setup).unwrap();
    home.run(&repo, "git", &["switch", "-q", "-c", "evil"]);
    fs::rename(repo.join("p"), home.path().join("p")).unwrap();
    std::os::unix::fs::symlink(&victim, repo.join("p")).unwrap();
    home.run(&repo, "git", &["add", "p"]);
    home.run(&repo, "git", &["commit", "-q", "-m", "a link"]);
    home.run(&repo, "git", &["switch", "-q", "main"]);
    fs::rename(home.path().join("p"), repo.join("p")).unwrap();
    home.toft(&repo, &["ws", "create", "--name", "x", "--base", "evil"]).says("behind a link");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    let y = create(&home, &repo, "y", &[]);
    assert!(y.join("node_modules").is_dir() && y.join("p/evil").is_file());
    fs::remove_dir_all(y.join("p")).unwrap();
    home.toft(&repo, &["ws", "rm", "y"]).ok();
    assert!(repo.join("node_modules").is_dir());
}

#[test]
fn a_home_behind_a_link_is_one_place() {
    let (home, repo) = Home::with(project);
    let link = home.path().join("link");
    std::os::unix::fs::symlink(home.path().join("home"), &link).unwrap();
    let env = [("HOME", link.to_str().unwrap())];
    let path = home.toft_with(&repo, &env, &["ws", "create", "--name", "x", "-q"]).ok();
    let x = PathBuf::from(path.trim());
    let mut sitter = Command::new("sleep").arg("20").current_dir(&x).spawn().unwrap();
    home.toft_with(&repo, &env, &["ws", "rm", "x"]).fails(5);
    sitter.kill().unwrap();
    sitter.wait().unwrap();
    home.toft_with(&repo, &env, &["ws", "rm", "x"]).ok();
    assert_eq!(home.run(&repo, "git", &["worktree", "list"]).lines().count(), 1);
    home.toft_with(&repo, &env, &["ws", "create", "--name", "x"]).ok();
    let clone = home.toft_with(&repo, &env, &["ws", "create", "--name", "c", "--clone", "-q"]).ok();
    let place = |dir: &Path| home.toft_with(dir, &env, &["where", "--json"]).data()["store"].clone();
    assert_eq!(place(Path::new(clone.trim())), place(&repo));
}

#[test]
fn what_was_put_away_is_known_before_it_is_deleted() {
    let (home, repo) = Home::with(project);
    let x = create(&home, &repo, "x", &[]);
    for version in ["v1\n", "v2\n"] {
        fs::write(x.join("work"), version).unwrap();
        if version == "v1\n" {
            home.toft(&repo, &["ws", "rm", "x", "--rescue"]).ok();
            home.toft(&repo, &["ws", "restore", "x"]).ok();
        }
    }
    // What is put away cannot be deleted; that is done later.
    let held = x.join("ig/held");
    fs::create_dir(x.join("ig")).unwrap();
    fs::write(&held, "").unwrap();
    if !home.command(home.path(), "chattr", &["+i", held.to_str().unwrap()]).output().unwrap().status.success() {
        println!("skipped: no file can be made to stay here");
        return;
    }
    home.toft(&repo, &["ws", "rm", "x", "--rescue"]).ok();
    let beside = fs::read_dir(x.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let held = beside.map(|path| path.join("ig/held")).find(|path| path.exists()).unwrap();
    home.run(home.path(), "chattr", &["-i", held.to_str().unwrap()]);
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    home.toft(&repo, &["ws", "restore", "x"]).ok();
    assert_eq!(fs::read_to_string(x.join("work")).unwrap(), "v2\n");
}
