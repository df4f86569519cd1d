//! A crowd of processes makes workspaces while git tidies up, and hostile repositories get nothing out of it.

use std::io::ErrorKind;
use std::net::TcpListener;

use toft_stories::prelude::*;
use toft_stories::workspaces::fill;

/// Runs `start` for each of `count` at once; gives how many failed and what the first of them said.
fn all_at_once(count: usize, mut start: impl FnMut(usize) -> Child) -> (usize, String) {
    let children: Vec<Child> = (0..count).map(&mut start).collect();
    let (mut failed, mut first) = (0, String::new());
    for child in children {
        let output = child.wait_with_output().unwrap();
        if !output.status.success() {
            failed += 1;
            if first.is_empty() {
                first = String::from_utf8_lossy(&output.stderr).into_owned();
            }
        }
    }
    (failed, first)
}

/// `git gc --prune=now` over and over, until told to stop.
fn tidying(home: &Home, repo: &Path) -> Child {
    let script = "while [ ! -e stop ]; do git gc -q --prune=now; done";
    home.command(repo, "sh", &["-c", script]).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_crowd_makes_workspaces_while_git_tidies_up() {
    let home = Home::new();
    let count = sized(150, 1_000);
    let mut took = Vec::new();
    let mut bare_failed = 0;
    for bare in [false, true] {
        let repo = home.repo(if bare { "bare" } else { "api" });
        fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\nmost = 2000\n").unwrap();
        fill(&repo, 200);
        commit_all(&home, &repo, "files");
        home.run(&repo, "git", &["remote", "add", "origin", "."]);
        home.run(&repo, "git", &["fetch", "-q", "origin"]);
        let mut tidier = tidying(&home, &repo);
        let start = Instant::now();
        let (failed, said) = all_at_once(count, |n| {
            let (name, path) = (format!("plot{n}"), home.path().join(format!("bare-plots/{n}")));
            let mut command = match bare {
                true => {
                    let path = path.to_str().unwrap();
                    home.command(&repo, "git", &["worktree", "add", "-q", "-b", &name, path, "origin/main"])
                }
                false => {
                    let args = ["ws", "create", "--name", &name, "--base", "origin/main", "-q"];
                    home.command(&repo, toft_bin(), &args)
                }
            };
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        took.push(start.elapsed());
        fs::write(repo.join("stop"), "").unwrap();
        tidier.wait().unwrap();
        if bare {
            bare_failed = failed;
            continue;
        }
        assert_eq!(failed, 0, "{said}");
        let listed = home.toft(&repo, &["ws", "list", "--limit", "2000", "-q"]).ok();
        assert_eq!(listed.lines().count(), count);
        for name in listed.lines().take(sized(10, 100)) {
            let path = home.toft(&repo, &["ws", "path", name]).ok();
            let status = home.run(Path::new(path.trim()), "git", &["status", "--porcelain"]);
            assert_eq!(status, "", "{name} is whole");
        }
        home.run(&repo, "git", &["fsck", "--no-dangling"]);
    }
    println!("{count} at once: toft none failed in {:.1?}, git {bare_failed} failed in {:.1?}", took[0], took[1]);
}

/// What a hostile repository tries. Each runs `canary` if it can.
const TRAPS: [&str; 19] = [
    "alternates",
    "fsmonitor",
    "hooks-dir",
    "hooks-path",
    "smudge",
    "clean",
    "process",
    "textconv",
    "external-diff",
    "merge-driver",
    "ssh",
    "ext-remote",
    "credential",
    "promisor",
    "include",
    "alias",
    "gpg",
    "pager",
    "worktree-config",
];

/// Sets one trap in a repository.
fn set(home: &Home, repo: &Path, trap: &str, canary: &str, port: u16) {
    let git = |args: &[&str]| drop(home.run(repo, "git", args));
    let script = repo.join(format!(".git/{trap}.sh"));
    fs::write(&script, format!("#!/bin/sh\ntouch {canary}-{trap}\ncat\n")).unwrap();
    chmod(&script, 0o755);
    let script = script.to_str().unwrap();
    let url = format!("git://127.0.0.1:{port}/x");
    match trap {
        "fsmonitor" => git(&["config", "core.fsmonitor", script]),
        "hooks-dir" => {
            for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc", "post-rewrite"] {
                fs::create_dir_all(repo.join(".git/hooks")).unwrap();
                fs::copy(script, repo.join(".git/hooks").join(hook)).unwrap();
            }
        }
        "hooks-path" => {
            fs::create_dir_all(repo.join(".git/traps")).unwrap();
            fs::copy(script, repo.join(".git/traps/post-checkout")).unwrap();
            git(&["config", "core.hooksPath", repo.join(".git/traps").to_str().unwrap()]);
        }
        "smudge" | "clean" | "process" => {
            git(&["config", &format!("filter.t=r.ap.{trap}"), script]);
            git(&["config", "filter.t=r.ap.required", "true"]);
        }
        "textconv" => git(&["config", "diff.trap.textconv", script]),
        "external-diff" => git(&["config", "diff.external", script]),
        "merge-driver" => git(&["config", "merge.trap.driver", script]),
        "ssh" => git(&["config", "core.sshCommand", script]),
        "ext-remote" => {
            git(&["config", "remote.origin.url", &format!("ext::{script}")]);
            git(&["config", "protocol.ext.allow", "always"]);
        }
        "credential" => git(&["config", "credential.helper", script]),
        "promisor" => {
            git(&["config", "remote.origin.url", &url]);
            git(&["config", "remote.origin.promisor", "true"]);
            git(&["config", "remote.origin.partialclonefilter", "blob:none"]);
        }
        "include" => {
            let file = repo.join(".git/more");
            fs::write(&file, format!("[core]\n\tfsmonitor = {script}\n\tpager = {script}\n")).unwrap();
            git(&["config", "include.path", "more"]);
        }
        "alias" => {
            for name in ["status", "worktree", "reset", "fast-import", "rev-parse"] {
                git(&["config", &format!("alias.{name}"), &format!("!{script}")]);
            }
        }
        "gpg" => {
            git(&["config", "gpg.program", script]);
            git(&["config", "commit.gpgSign", "true"]);
            git(&["config", "log.showSignature", "true"]);
        }
        "pager" => {
            git(&["config", "core.pager", script]);
            git(&["config", "core.editor", script]);
            git(&["config", "core.askPass", script]);
        }
        "alternates" => {
            let other = repo.join("inner.git/objects").display().to_string();
            fs::create_dir_all(repo.join(".git/objects/info")).unwrap();
            fs::write(repo.join(".git/objects/info/alternates"), format!("{other}\n")).unwrap();
            git(&["config", "core.alternateRefsCommand", script]);
        }
        "worktree-config" => {
            git(&["config", "extensions.worktreeConfig", "true"]);
            git(&["config", "--worktree", "core.fsmonitor", script]);
        }
        other => panic!("{other}"),
    }
}

/// A repository with files that every trap could spring on.
fn bait(home: &Home, name: &str) -> PathBuf {
    let repo = home.git(name);
    fs::write(repo.join(".gitattributes"), "*.txt filter=t=r.ap diff=trap merge=trap\n").unwrap();
    fs::write(repo.join("a.txt"), "bait\n").unwrap();
    fs::write(repo.join("b.txt"), "more\n").unwrap();
    std::os::unix::fs::symlink(home.path().join("outside"), repo.join("way-out")).unwrap();
    commit_all(home, &repo, "bait");
    home.run(&repo, "git", &["init", "-q", "--bare", "inner.git"]);
    home.run(&repo, "git", &["branch", "--", "upload-pack=x"]);
    repo
}

#[test]
fn hostile_repositories_get_nothing_executed_connected_or_written_outside() {
    let home = Home::new();
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "untouched\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let canary = home.path().join("canary").display().to_string();
    let mut dice = Dice::new(42);
    let count = sized(40, 200);
    for n in 0..count {
        let repo = bait(&home, &format!("hostile{n}"));
        // Each by itself first, then mixtures.
        let traps: Vec<&str> = match TRAPS.get(n) {
            Some(trap) => vec![trap],
            None => TRAPS.into_iter().filter(|_| dice.one_in(3)).collect(),
        };
        for trap in &traps {
            set(&home, &repo, trap, &canary, port);
        }
        let toft = |args: &[&str]| home.toft(&repo, args);
        toft(&["init"]).ok();
        let id = toft(&["add", "Look into it", "-q"]).ok().trim().to_owned();
        let claimed = toft(&["claim", "--ws", "--json"]);
        if claimed.code == 0 {
            let path = PathBuf::from(claimed.data()["workspace"]["path"].as_str().unwrap());
            fs::write(path.join("a.txt"), "changed\n").unwrap();
            fs::write(path.join("new.txt"), "new\n").unwrap();
            for args in [
                &["ws", "list"][..],
                &["ws", "list", &id],
                &["ws", "rescue", &id],
                &["finish", "--no-change", "looked"],
                &["ws", "gc"],
                &["ws", "rm", &id, "--rescue"],
                &["ws", "restore", &id],
            ] {
                let said = toft(args);
                assert_eq!(said.code, 0, "{traps:?}: {said:?}");
            }
            assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "changed\n");
            let apart = toft(&["ws", "create", "--name", "apart", "--clone", "-q"]).ok();
            fs::write(Path::new(apart.trim()).join("new.txt"), "new\n").unwrap();
            toft(&["ws", "rm", "apart", "--rescue"]).ok();
            toft(&["ws", "restore", "apart"]).ok();
        }
        for args in [&["doctor"][..], &["status"], &["ready"], &["where"], &["list"], &["history"]] {
            toft(args);
        }
        let found: Vec<_> = fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let found: Vec<_> = found.iter().filter(|name| name.to_string_lossy().starts_with("canary")).collect();
        assert!(found.is_empty(), "{traps:?} sprang: {found:?}");
        home.toft(&repo.join("inner.git"), &["ws", "list"]);
    }
    let expected = [(outside.join("file"), b"untouched\n".to_vec())];
    assert_eq!(snapshot(&outside).into_iter().collect::<Vec<_>>(), expected);
    // A call may take a moment to arrive.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody was called");
    // The traps do spring for those who do not mind them.
    let repo = bait(&home, "careless");
    set(&home, &repo, "smudge", &canary, port);
    set(&home, &repo, "hooks-dir", &canary, port);
    home.command(&repo, "git", &["worktree", "add", "-q", "../sprung"]).output().unwrap();
    assert!(Path::new(&format!("{canary}-smudge")).exists() && Path::new(&format!("{canary}-hooks-dir")).exists());
}
