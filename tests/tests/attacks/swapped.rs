//! Agents that rewrite what version control believes, while a user looks: nothing of theirs is executed outside of their sandbox.

use toft_stories::prelude::*;
use toft_stories::traps::{Trap, programs, project};

/// A process that puts one file and then another in a place, over and over, and can write nothing else.
///
/// It swaps each place between what is beside it as `.good` and `.bad`.
fn swapper(home: &Home, dir: &Path, places: &[PathBuf]) -> ChildGuard {
    let mut words = vec!["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--die-with-parent"];
    let mut writable: Vec<String> = vec![dir.display().to_string()];
    writable.extend(places.iter().map(|place| place.parent().unwrap().display().to_string()));
    words.extend(writable.iter().flat_map(|path| ["--bind", path.as_str(), path.as_str()]));
    let mut script = "while :; do\n".to_owned();
    for kind in ["bad", "good"] {
        for place in places.iter().map(|place| place.display()) {
            script += &format!("cp {place}.{kind} {place}.tmp && mv {place}.tmp {place}\n");
        }
    }
    script += "done";
    let works = home.command(home.path(), "bwrap", &["--ro-bind", "/", "/", "true"]).status();
    let mut command = match works.is_ok_and(|status| status.success()) {
        true => {
            words.extend(["--", "sh", "-c", &script]);
            home.command(dir, "bwrap", &words)
        }
        false => home.command(dir, "sh", &["-c", &script]),
    };
    ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// What is there now is good; this is bad.
fn plant(place: &Path, bad: &str) -> PathBuf {
    let beside = |kind: &str| PathBuf::from(format!("{}.{kind}", place.display()));
    fs::write(beside("good"), fs::read(place).unwrap_or_default()).unwrap();
    fs::write(beside("bad"), bad).unwrap();
    place.to_owned()
}

/// A workspace with its submodule filled and something changed in both.
fn workspace(home: &Home, repo: &Path, name: &str, more: &[&str]) -> PathBuf {
    home.toft(repo, &[&["ws", "create", "--name", name], more].concat()).ok();
    let dir = PathBuf::from(home.toft(repo, &["ws", "path", name]).ok().trim());
    home.run(&dir, "git", &["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"]);
    for dir in [&dir, &dir.join("sub")] {
        fs::write(dir.join(".gitattributes"), "* filter=e diff=e merge=e\n").unwrap();
    }
    fs::write(dir.join("f1"), "changed\n").unwrap();
    fs::write(dir.join("sub/x"), "changed\n").unwrap();
    dir
}

/// A git directory of an agent's own in its workspace, that fits its files.
fn own_git_dir(home: &Home, trap: &Trap, dir: &Path, tag: &str) -> PathBuf {
    let own = PathBuf::from(home.run(dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    let common = home.run(dir, "git", &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    let at = dir.join("eg");
    home.run(dir, "git", &["init", "-q", "--bare", "eg"]);
    let config = fs::read_to_string(at.join("config")).unwrap().replace("bare = true", "bare = false");
    fs::write(at.join("config"), config + &programs(trap, tag)).unwrap();
    fs::write(at.join("HEAD"), home.run(dir, "git", &["rev-parse", "HEAD"])).unwrap();
    fs::copy(own.join("index"), at.join("index")).unwrap();
    fs::write(at.join("objects/info/alternates"), format!("{}/objects\n", common.trim())).unwrap();
    at
}

/// Every command that looks at workspaces and leaves them.
fn looks(name: &str) -> Vec<Vec<&str>> {
    let all: [&[&str]; 15] = [
        &["ws", "list"],
        &["ws", "list", name],
        &["ws", "path", name],
        &["show", "--diff", name],
        &["status"],
        &["ws", "gc", "-n"],
        &["ws", "gc", "--older-than", "0s", "-n"],
        &["doctor"],
        &["prime"],
        &["where"],
        &["list"],
        &["ws", "rescue", name],
        &["ws", "create", "--name", name],
        &["doctor", "--outgoing"],
        &["ws", "rm", name],
    ];
    all.iter().map(|args| args.to_vec()).collect()
}

/// Runs every command again and again, in the repository and in the workspace.
fn look(home: &Home, trap: &Trap, repo: &Path, dir: &Path, name: &str, rounds: usize) {
    for _ in 0..rounds {
        for args in looks(name) {
            home.toft(repo, &args);
            trap.assert_untouched(&args.join(" "));
        }
        for args in [&["status"][..], &["ws", "list"], &["list"], &["prime"], &["doctor"], &["save", "-m", "half"]] {
            home.toft(dir, args);
            trap.assert_untouched(&format!("{} in the workspace", args.join(" ")));
        }
    }
}

#[test]
fn a_worktree_whose_git_is_swapped_executes_nothing() {
    let (home, (trap, repo)) = Home::with(|home| (Trap::new(home), project(home)));
    let dir = workspace(&home, &repo, "w", &[]);
    let own = PathBuf::from(home.run(&dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    let module = own.join("modules/sub");
    let evil = own_git_dir(&home, &trap, &dir, "worktree");
    let config = fs::read_to_string(module.join("config")).unwrap();
    let places = [
        plant(&dir.join(".git"), &format!("gitdir: {}\n", evil.display())),
        plant(&own.join("commondir"), &format!("{}\n", evil.display())),
        plant(&dir.join("sub/.git"), &format!("gitdir: {}\n", evil.display())),
        plant(&module.join("config"), &(config + &programs(&trap, "module"))),
    ];
    trap.lay();
    let swapper = swapper(&home, &dir, &places);
    look(&home, &trap, &repo, &dir, "w", sized(2, 20));
    for _ in 0..sized(2, 10) {
        home.toft(&repo, &["ws", "rm", "w", "--rescue"]);
        home.toft(&repo, &["ws", "restore", "w"]);
        home.toft(&repo, &["ws", "gc", "--older-than", "0s"]);
        trap.assert_untouched("ws rm, restore and gc");
    }
    drop(swapper);
}

#[test]
fn claiming_and_finishing_beside_a_swapper_executes_nothing() {
    let (home, (trap, repo)) = Home::with(|home| (Trap::new(home), project(home)));
    home.toft(&repo, &["add", "Job"]).ok();
    let claim = ["--as", "ann", "claim", "--ws", "--json"];
    let dir = PathBuf::from(home.toft(&repo, &claim).data()["workspace"]["path"].as_str().unwrap());
    let own = PathBuf::from(home.run(&dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    let evil = own_git_dir(&home, &trap, &dir, "worktree");
    let places = [
        plant(&dir.join(".git"), &format!("gitdir: {}\n", evil.display())),
        plant(&own.join("commondir"), &format!("{}\n", evil.display())),
    ];
    trap.lay();
    let swapper = swapper(&home, &dir, &places);
    for _ in 0..sized(6, 60) {
        for at in [&repo, &dir] {
            for args in [&["--as", "ann", "save", "-m", "half"][..], &["--as", "ann", "finish", "release"], &claim] {
                home.toft(at, args);
                trap.assert_untouched(&args.join(" "));
            }
        }
    }
    home.toft(&repo, &["--as", "ann", "finish", "-m", "done"]);
    trap.assert_untouched("finish");
    drop(swapper);
}

#[test]
fn a_worktree_with_a_configuration_of_its_own_executes_nothing() {
    let (home, (trap, repo)) = Home::with(|home| (Trap::new(home), project(home)));
    home.run(&repo, "git", &["config", "extensions.worktreeConfig", "true"]);
    let dir = workspace(&home, &repo, "w", &[]);
    let own = PathBuf::from(home.run(&dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    let place = plant(&own.join("config.worktree"), &programs(&trap, "config.worktree"));
    trap.lay();
    let swapper = swapper(&home, &dir, &[place]);
    look(&home, &trap, &repo, &dir, "w", sized(2, 20));
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]);
    trap.assert_untouched("ws rm");
    drop(swapper);
}

#[test]
fn a_clone_whose_configuration_is_swapped_executes_nothing() {
    let (home, (trap, repo)) = Home::with(|home| (Trap::new(home), project(home)));
    let dir = workspace(&home, &repo, "c", &["--clone"]);
    let module = dir.join(".git/modules/sub/config");
    let with = |file: &Path, tag: &str| fs::read_to_string(file).unwrap() + &programs(&trap, tag);
    let places = [
        plant(&dir.join(".git/config"), &with(&dir.join(".git/config"), "clone")),
        plant(&module, &with(&module, "module")),
    ];
    trap.lay();
    let swapper = swapper(&home, &dir, &places);
    look(&home, &trap, &repo, &dir, "c", sized(2, 20));
    for _ in 0..sized(2, 10) {
        home.toft(&repo, &["ws", "rm", "c", "--rescue"]);
        home.toft(&repo, &["ws", "restore", "c"]);
        trap.assert_untouched("ws rm and restore");
    }
    drop(swapper);
}

#[test]
fn an_agent_in_tofts_own_sandbox_does_not_get_out() {
    let mut home = Home::outside_of_tmp();
    home.toft_on_path();
    let (trap, repo) = (Trap::new(&home), project(&home));
    add(&home, &repo, &["Work"]);
    let config = home.path().join("programs");
    fs::write(&config, programs(&trap, "escaped")).unwrap();
    agents::script(
        &home,
        "agent.sh",
        &format!(
            r#"#!/bin/sh
            D=$PWD; git init -q --bare eg; sed -i 's/bare = true/bare = false/' eg/config; cat {config} >> eg/config
            git rev-parse HEAD > eg/HEAD; own=$(git rev-parse --absolute-git-dir); common=$(dirname $(dirname $own))
            cp $own/index eg/; echo $common/objects > eg/objects/info/alternates
            cp .git .git.good; echo "gitdir: $D/eg" > .git.bad; echo '* filter=e' > .gitattributes; echo changed >> f1
            for file in $common/config $common/hooks/post-checkout $common/info/attributes $common/toft/config.toml \
                $common/toft/clones/x $common/worktrees/other/config.worktree $own/commondir ../.repositories \
                $HOME/.local/state/toft/trust/x; do
                (echo x >> $file) 2>/dev/null && echo "open: $file" && touch open
            done
            for n in $(seq 300); do cp .git.bad .git.tmp; mv .git.tmp .git; cp .git.good .git.tmp; mv .git.tmp .git; done
            [ -e open ] || echo kept out
            toft finish --no-change "nothing to do""#,
            config = config.display()
        ),
    );
    fs::create_dir_all(repo.join(".git/worktrees/other")).unwrap();
    trap.lay();
    let run = ["run", "--once", "--sandbox=offline", "--", "sh", &home.path().join("agent.sh").display().to_string()];
    let mut agent = home.start(&repo, &run);
    while agent.try_wait().unwrap().is_none() {
        for args in [&["ws", "list"][..], &["status"]] {
            home.toft(&repo, args);
            trap.assert_untouched(&args.join(" "));
        }
    }
    let ended = agent.wait().unwrap();
    if ended.code() == Some(4) {
        // Where there is no sandbox, it is refused.
        return;
    }
    let issue = home.toft(&repo, &["list", "--all", "-q"]).ok();
    let log = home.toft(&repo, &["show", issue.trim(), "--log"]).ok();
    assert!(log.contains("kept out"), "{ended:?} {log}");
}

#[test]
fn a_jujutsu_workspace_whose_repository_is_swapped_executes_nothing() {
    let (home, trap) = Home::with(Trap::new);
    home.run(home.path(), "jj", &["git", "init", "--quiet", "main"]);
    let repo = home.path().join("main");
    fs::write(repo.join("f1"), "1\n").unwrap();
    home.run(&repo, "jj", &["commit", "--quiet", "-m", "first"]);
    home.toft(&repo, &["init"]).ok();
    home.toft(&repo, &["ws", "create", "--name", "w"]).ok();
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", "w"]).ok().trim());
    fs::write(dir.join("f1"), "changed\n").unwrap();
    home.run(&dir, "jj", &["git", "init", "--quiet", "eg"]);
    let evil = dir.join("eg/.jj/repo");
    let words = |how: &str| format!("[\"{}\", \"{how}\"]", trap.program);
    let config = format!(
        "ui.editor = {}\nui.pager = {}\nui.diff-formatter = {}\nui.show-cryptographic-signatures = true\n\
         fsmonitor.backend = \"watchman\"\nsigning.behavior = \"force\"\nsigning.backend = \"gpg\"\n\
         signing.backends.gpg.program = \"{1}\"\nsigning.backends.ssh.program = \"{1}\"\n\
         git.executable-path = \"{1}\"\naliases.log = [\"util\", \"exec\", \"--\", \"{1}\", \"alias\"]\n\
         template-aliases.commit_id = \"'x'\"\n",
        words("editor"),
        trap.program,
        words("formatter"),
    );
    // Where it was before jj kept it elsewhere, and takes it from.
    let _ = fs::remove_file(evil.join("config-id"));
    fs::write(evil.join("config.toml"), &config).unwrap();
    fs::write(dir.join(".jj/workspace-config.toml"), &config).unwrap();
    let place = plant(&dir.join(".jj/repo"), &evil.display().to_string());
    trap.lay();
    let swapper = swapper(&home, &dir, &[place]);
    look(&home, &trap, &repo, &dir, "w", sized(1, 10));
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]);
    trap.assert_untouched("ws rm");
    drop(swapper);
}

#[test]
fn a_mercurial_share_whose_repository_is_swapped_executes_nothing() {
    let (home, trap) = Home::with(Trap::new);
    let repo = home.path().join("main");
    home.run(home.path(), "hg", &["init", "main"]);
    fs::write(repo.join("f1"), "1\n").unwrap();
    home.run(&repo, "hg", &["commit", "-q", "-A", "-m", "first"]);
    home.toft(&repo, &["init"]).ok();
    home.toft(&repo, &["ws", "create", "--name", "w"]).ok();
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", "w"]).ok().trim());
    fs::write(dir.join("f1"), "changed\n").unwrap();
    home.run(home.path(), "hg", &["clone", "-q", "main", dir.join("eg").to_str().unwrap()]);
    let config = format!(
        "[hooks]\npre-status = {0} hook\npre-log = {0} hook\npost-log = {0} hook\nupdate = {0} hook\n[alias]\nlog = !{0} alias\n\
         status = !{0} alias\n[ui]\neditor = {0} editor\nmerge = evil\n[merge-tools]\nevil.executable = {0}\n\
         [encode]\n** = pipe: {0} encode\n[decode]\n** = pipe: {0} decode\n[extensions]\nevil = {1}\n[pager]\npager = {0}\n",
        trap.program,
        dir.join("evil.py").display()
    );
    fs::write(dir.join("evil.py"), format!("import os\nos.system('{} extension')\n", trap.program)).unwrap();
    fs::write(dir.join("eg/.hg/hgrc"), &config).unwrap();
    let places = [
        plant(&dir.join(".hg/sharedpath"), &dir.join("eg/.hg").display().to_string()),
        plant(&dir.join(".hg/hgrc"), &config),
        plant(&dir.join(".hg/hgrc-not-shared"), &config),
    ];
    trap.lay();
    let swapper = swapper(&home, &dir, &places);
    // Mercurial takes long to start.
    for args in [&["ws", "list"][..], &["status"], &["ws", "gc", "-n"], &["doctor"], &["ws", "rm", "w"]] {
        for at in [&repo, &dir] {
            home.toft(at, args);
            trap.assert_untouched(&args.join(" "));
        }
    }
    drop(swapper);
}

#[test]
fn a_workspace_that_was_rewritten_executes_nothing_and_stays() {
    let (home, (trap, repo)) = Home::with(|home| (Trap::new(home), project(home)));
    let own_of = |dir: &Path| PathBuf::from(home.run(dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    type Rewrite<'a> = &'a dyn Fn(&Path, &Path, &Path);
    let more = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        fs::write(file, text + &programs(&trap, "more")).unwrap();
    };
    let rewrites: [(&str, &[&str], Rewrite<'_>); 6] = [
        ("gitfile", &[], &|dir, _, evil| fs::write(dir.join(".git"), format!("gitdir: {}\n", evil.display())).unwrap()),
        ("gone", &[], &|dir, _, _| fs::remove_file(dir.join(".git")).unwrap()),
        ("commondir", &[], &|_, own, evil| fs::write(own.join("commondir"), evil.display().to_string()).unwrap()),
        ("entry", &[], &|_, own, _| more(own.join("config.worktree"))),
        ("clone", &["--clone"], &|dir, _, _| more(dir.join(".git/config"))),
        ("hooks", &["--clone"], &|dir, _, _| {
            let hook = dir.join(".git/hooks/post-index-change");
            fs::create_dir_all(hook.parent().unwrap()).unwrap();
            fs::copy(&trap.program, hook).unwrap();
        }),
    ];
    for (name, kind, rewrite) in rewrites {
        let dir = workspace(&home, &repo, name, kind);
        let own = own_of(&dir);
        let evil = own_git_dir(&home, &trap, &dir, name);
        rewrite(&dir, &own, &evil);
        trap.lay();
        for at in [&repo, &dir] {
            for args in [&["ws", "list"][..], &["ws", "list", name], &["status"], &["doctor"], &["ws", "rm", name]] {
                home.toft(at, args);
                trap.assert_untouched(&format!("{name}: {}", args.join(" ")));
            }
        }
        for args in [&["ws", "rescue", name][..], &["ws", "gc", "--older-than", "0s"], &["ws", "rm", name, "--rescue"]]
        {
            home.toft(&repo, args);
            trap.assert_untouched(&format!("{name}: {}", args.join(" ")));
        }
        // What was put away comes back, and what could not be is where it was.
        if !dir.exists() {
            home.toft(&repo, &["ws", "restore", name]).ok();
            trap.assert_untouched(&format!("{name}: ws restore"));
        }
        assert!(dir.join("sub/x").exists(), "{name}: its submodule has work that is nowhere else");
    }
}

#[test]
fn a_workspace_that_lost_its_git_belongs_to_no_repository_around_it() {
    let home = Home::new();
    let around = home.path().join("home");
    home.run(&around, "git", &["init", "-q", "-b", "main"]);
    home.run(&around, "git", &["commit", "-q", "--allow-empty", "-m", "dotfiles"]);
    home.toft(&around, &["init"]).ok();
    let repo = home.repo("api");
    home.toft(&repo, &["ws", "create", "--name", "w"]).ok();
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", "w"]).ok().trim());
    assert!(dir.starts_with(&around));
    fs::write(dir.join("work"), "work\n").unwrap();
    home.toft(&repo, &["ws", "list"]).says("1 untracked");
    fs::remove_file(dir.join(".git")).unwrap();
    for args in [&["add", "Lost"][..], &["ws", "list"], &["status"], &["claim"]] {
        let said = home.toft(&dir, args);
        assert!(said.code != 0 && said.err.contains("no longer says so"), "{said:?}");
    }
    for args in [&["ws", "list"][..], &["ws", "rm", "w", "--rescue"], &["ws", "gc", "--older-than", "0s"], &["doctor"]]
    {
        home.toft(&repo, args);
    }
    assert_eq!(fs::read_to_string(dir.join("work")).unwrap(), "work\n");
    assert!(home.toft(&around, &["list", "-q"]).ok().is_empty(), "nothing was planned in the repository around it");
    assert_eq!(home.run(&around, "git", &["rev-list", "--count", "--all"]).trim(), "1");
}

/// Every file below a directory.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let found = entries.flat_map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files_below(&entry.path()),
        _ => vec![entry.path()],
    });
    found.collect()
}

/// What a sandboxed agent can write of toft's own files, and of git's: each file in turn is a link to a file of the user's.
#[test]
fn nothing_is_written_through_a_link_that_an_agent_put_in_place_of_a_file() {
    let (home, repo) = Home::with(project);
    let (origin, canaries) = (home.path().join("origin.git"), home.path().join("canaries"));
    home.run(home.path(), "git", &["init", "-q", "--bare", origin.to_str().unwrap()]);
    home.run(&repo, "git", &["remote", "add", "origin", origin.to_str().unwrap()]);
    fs::create_dir(&canaries).unwrap();
    add(&home, &repo, &["work"]);
    home.toft(&repo, &["claim", "--as", "ann"]).ok();
    home.toft(&repo, &["sync"]).ok();
    home.toft(&repo, &["ws", "create", "--name", "first"]).ok();
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", "first"]).ok().trim());
    fs::write(dir.join("f1"), "changed\n").unwrap();
    home.toft(&dir, &["save", "-m", "half"]);
    home.toft(&repo, &["ws", "list"]).ok();
    let entry = PathBuf::from(home.run(&dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    let state = repo.join(".git/toft");
    let writable = ["locks", "index", "fences", "holds", "sessions", "blobs", "deleted", "sync"];
    let mut places: Vec<PathBuf> = writable.iter().flat_map(|name| files_below(&state.join(name))).collect();
    places.extend(["toft-given-up", "toft-restoring", "toft-worktree", "index", "HEAD"].map(|name| entry.join(name)));
    let memos = files_below(&state.join("sync"));
    places.extend(memos.iter().flat_map(|memo| ["new", "pace"].map(|end| memo.with_extension(end))));
    println!("{} places", places.len());
    assert!(places.len() > 10, "{places:?}");
    for (n, place) in places.iter().enumerate() {
        // Some targets are there, and some are not: neither is to be written, nor made.
        let canary = canaries.join(n.to_string());
        if n % 3 > 0 {
            fs::write(&canary, "the user's").unwrap();
        }
        let before = fs::read(place).ok();
        let _ = fs::remove_file(place);
        std::os::unix::fs::symlink(&canary, place).unwrap();
        let commands: [&[&str]; 9] = [
            &["ws", "list"],
            &["add", "more"],
            &["sync"],
            &["list"],
            &["status"],
            &["doctor"],
            &["ws", "rescue", "first"],
            &["ws", "rm", "first", "--rescue"],
            &["ws", "restore", "first"],
        ];
        for args in commands {
            home.toft(&repo, args);
            let now = fs::read_to_string(&canary).ok();
            let wanted = (n % 3 > 0).then(|| "the user's".to_owned());
            assert_eq!(now, wanted, "{} was followed by {args:?}", place.display());
        }
        // What was refused goes on once it is as it was.
        if place.is_symlink() {
            fs::remove_file(place).unwrap();
            if let Some(bytes) = before {
                fs::write(place, bytes).unwrap();
            }
        }
    }
    home.toft(&repo, &["sync"]).ok();
    home.toft(&repo, &["ws", "list"]).ok();
}
