//! Repositories of strangers, made hostile in many ways: toft works in them, and executes nothing of theirs.

use toft_stories::prelude::*;
use toft_stories::traps::{Trap, programs, project};

/// Settings by which git, or a program that it starts, starts another: `@` stands for the trap.
const SETTINGS: [(&str, &str); 50] = [
    ("core.fsmonitor", "@"),
    ("core.hooksPath", "hooks-of-mine"),
    ("core.sshCommand", "@"),
    ("core.editor", "@"),
    ("core.pager", "@"),
    ("core.askPass", "@"),
    ("core.gitProxy", "@"),
    ("core.alternateRefsCommand", "@"),
    ("core.attributesFile", "attributes-of-mine"),
    ("core.worktree", "/"),
    ("sequence.editor", "@"),
    ("pager.status", "true"),
    ("pager.log", "@"),
    ("pager.diff", "@"),
    ("filter.e.clean", "@"),
    ("filter.e.smudge", "@"),
    ("filter.e.process", "@"),
    ("filter.e.required", "true"),
    ("filter.lfs.process", "@"),
    ("lfs.customtransfer.x.path", "@"),
    ("lfs.extension.x.clean", "@"),
    ("diff.external", "@"),
    ("diff.e.textconv", "@"),
    ("diff.e.command", "@"),
    ("diff.submodule", "diff"),
    ("merge.e.driver", "@ %A"),
    ("mergetool.x.cmd", "@"),
    ("credential.helper", "!@"),
    ("gpg.program", "@"),
    ("gpg.ssh.program", "@"),
    ("commit.gpgSign", "true"),
    ("log.showSignature", "true"),
    ("uploadpack.packObjectsHook", "@"),
    ("alias.status", "!@"),
    ("alias.worktree", "!@"),
    ("trailer.x.command", "@"),
    ("remote.origin.url", "ext::@"),
    ("remote.origin.uploadpack", "@"),
    ("remote.origin.receivepack", "@"),
    ("remote.origin.vcs", "evil"),
    ("remote.origin.promisor", "true"),
    ("protocol.ext.allow", "always"),
    ("submodule.recurse", "true"),
    ("submodule.sub.update", "!@"),
    ("fetch.recurseSubmodules", "true"),
    ("status.submoduleSummary", "true"),
    ("hook.evil.command", "@"),
    ("hook.evil.event", "post-checkout"),
    ("include.path", "included"),
    ("includeIf.gitdir:/.path", "included"),
];

const HOOKS: [&str; 12] = [
    "post-checkout",
    "reference-transaction",
    "post-index-change",
    "fsmonitor-watchman",
    "pre-auto-gc",
    "post-merge",
    "pre-commit",
    "post-commit",
    "commit-msg",
    "pre-push",
    "update",
    "proc-receive",
];

/// Makes a repository hostile, in some of many ways; says which.
fn poison(home: &Home, trap: &Trap, repo: &Path, dice: &mut Dice) -> Vec<String> {
    let mut how = Vec::new();
    let git = |args: &[&str]| drop(home.command(repo, "git", args).output());
    let own = repo.join(".git");
    let few = dice.one_in(2);
    // With all of them at once, one might hide what another would do.
    for (key, value) in SETTINGS {
        if key != "core.worktree" && dice.one_in(if few { 6 } else { 2 }) {
            let value = value.replace('@', &trap.by(key));
            git(&["config", "--add", key, &value]);
            how.push(key.to_owned());
        }
    }
    if dice.one_in(8) {
        git(&["config", "core.worktree", "/"]);
        how.push("core.worktree".into());
    }
    for dir in [own.join("hooks"), repo.join("hooks-of-mine"), own.join("hooks-of-mine")] {
        fs::create_dir_all(&dir).unwrap();
        for hook in HOOKS {
            let path = dir.join(hook);
            fs::write(&path, format!("#!/bin/sh\nexec {}\n", trap.by(hook))).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    fs::write(own.join("included"), programs(trap, "included")).unwrap();
    fs::write(own.join("info/attributes"), "* filter=e diff=e merge=e\n").unwrap();
    fs::write(repo.join("attributes-of-mine"), "* filter=lfs\n").unwrap();
    fs::write(repo.join(".lfsconfig"), format!("[lfs]\n\turl = ssh://-oProxyCommand={}/x\n", trap.program)).unwrap();
    if dice.one_in(2) {
        git(&["config", "extensions.worktreeConfig", "true"]);
        fs::write(own.join("config.worktree"), programs(trap, "config.worktree")).unwrap();
        how.push("config.worktree".into());
    }
    if dice.one_in(3) {
        let text = format!("[submodule \"sub\"]\n\tpath = sub\n\turl = ext::{0}\n\tupdate = !{0}\n", trap.program);
        fs::write(repo.join(".gitmodules"), text).unwrap();
        how.push(".gitmodules".into());
    }
    if dice.one_in(3) {
        fs::write(own.join("objects/info/alternates"), "/nowhere\n../../../../tmp\n").unwrap();
        how.push("alternates".into());
    }
    let tip = home.command(repo, "git", &["-c", "core.fsmonitor=false", "rev-parse", "HEAD"]).output().unwrap().stdout;
    fs::write(own.join("refs/heads/-evil;touch pwn"), &tip).unwrap();
    fs::write(own.join("refs/heads/--upload-pack=x"), &tip).unwrap();
    how
}

fn hostile_repositories(seed: u64, count: usize) {
    let mut made = 0;
    for n in 0..count {
        let home = Home::new();
        let (trap, repo) = (Trap::new(&home), project(&home));
        let mut dice = Dice::new(seed * 1_000 + n as u64);
        add(&home, &repo, &["Work"]);
        fs::write(repo.join(".gitattributes"), "* filter=e diff=e merge=e\n").unwrap();
        commit_all(&home, &repo, "attributes");
        let how = poison(&home, &trap, &repo, &mut dice);
        trap.lay();
        let toft = |args: &[&str]| {
            let said = home.toft(&repo, args);
            trap.assert_untouched(&format!("{} ({how:?})", args.join(" ")));
            said.out.trim().to_owned()
        };
        let clone: &[&str] = if dice.one_in(3) { &["--clone"] } else { &[] };
        toft(&[&["ws", "create", "--name", "w"], clone].concat());
        let dir = PathBuf::from(toft(&["ws", "path", "w"]));
        if dir.is_absolute() {
            fs::write(dir.join("f1"), "changed\n").unwrap();
            fs::write(dir.join("new"), "new\n").unwrap();
            made += 1;
        }
        for args in [
            &["ws", "list"][..],
            &["ws", "rm", "w", "--rescue"],
            &["ws", "restore", "w"],
            &["status"],
            &["ws", "create", "--name", "b", "--base", "-evil;touch pwn"],
            &["ws", "create", "--ahead", "1"],
            &["claim", "--ws", "--as", "a"],
            &["save", "-m", "half", "--as", "a"],
            &["finish", "--no-change", "none", "--as", "a"],
            &["sync"],
            &["doctor"],
            &["ws", "gc", "--older-than", "0s"],
        ] {
            if args != ["sync"] || dice.one_in(2) {
                toft(args);
            }
        }
    }
    assert!(made * 2 > count, "workspaces were made of {made} of {count}");
}

#[test]
fn hostile_repositories_execute_nothing_1() {
    hostile_repositories(1, sized(10, 100));
}

#[test]
fn hostile_repositories_execute_nothing_2() {
    hostile_repositories(2, sized(10, 100));
}

#[test]
fn hostile_repositories_execute_nothing_3() {
    hostile_repositories(3, sized(10, 100));
}
