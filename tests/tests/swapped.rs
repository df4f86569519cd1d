//! Agents that rewrite what version control believes, while a user looks: nothing of theirs is executed outside of their sandbox.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use toft_stories::{Home, agents, issues::add, sized, workspaces::Dice};

/// A program that somebody plants; whoever starts it leaves a trace.
struct Trap {
    program: String,
    trace: PathBuf,
}

impl Trap {
    fn new(home: &Home) -> Self {
        let (program, trace) = (home.path().join("evil.sh"), home.path().join("trace"));
        fs::write(&program, format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat 2>/dev/null\nexit 0\n", trace.display()))
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program: program.display().to_string(), trace }
    }

    /// A command line that springs it, saying how.
    fn by(&self, how: &str) -> String {
        format!("{} {how}", self.program)
    }

    /// Whatever was sprung while the trap was laid is forgotten.
    fn lay(&self) {
        let _ = fs::remove_file(&self.trace);
    }

    fn assert_untouched(&self, after: &str) {
        let trace = fs::read_to_string(&self.trace).unwrap_or_default();
        assert!(trace.is_empty(), "executed by {after}: {trace}");
    }
}

/// Somebody who puts one file and then another in a place, over and over, and can write nothing else.
struct Swapper(Child);

impl Swapper {
    /// Swaps each place between what is beside it as `.good` and `.bad`.
    fn start(home: &Home, dir: &Path, places: &[PathBuf]) -> Self {
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
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is there now is good; this is bad.
fn plant(place: &Path, bad: &str) -> PathBuf {
    let beside = |kind: &str| PathBuf::from(format!("{}.{kind}", place.display()));
    fs::write(beside("good"), fs::read(place).unwrap_or_default()).unwrap();
    fs::write(beside("bad"), bad).unwrap();
    place.to_owned()
}

fn lines(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// A repository with some files and a submodule.
fn project(home: &Home) -> PathBuf {
    let sub = home.git("library");
    fs::write(sub.join("x"), "x\n").unwrap();
    home.run(&sub, "git", &["add", "-A"]);
    home.run(&sub, "git", &["commit", "-q", "-m", "x"]);
    let repo = home.repo("api");
    for n in 0..20 {
        fs::write(repo.join(format!("f{n}")), format!("{n}\n")).unwrap();
    }
    fs::write(repo.join(".gitignore"), lines(&["*.good", "*.bad", "*.tmp", "eg/", "out/"])).unwrap();
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.to_str().unwrap(), "sub"];
    home.run(&repo, "git", &add);
    home.run(&repo, "git", &["add", "-A"]);
    home.run(&repo, "git", &["commit", "-q", "-m", "files"]);
    repo
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

/// A configuration that names programs wherever git would start one.
fn programs(trap: &Trap, tag: &str) -> String {
    let by = |what: &str| trap.by(&format!("{tag}-{what}"));
    format!(
        "[core]\n\tfsmonitor = {}\n\tsshCommand = {}\n\talternateRefsCommand = {}\n\teditor = {}\n\tpager = {}\n\
         [filter \"e\"]\n\tclean = {}\n\tsmudge = {}\n\tprocess = {}\n\trequired = true\n\
         [diff \"e\"]\n\ttextconv = {}\n\tcommand = {}\n[merge \"e\"]\n\tdriver = {}\n",
        by("fsmonitor"),
        by("ssh"),
        by("alternates"),
        by("editor"),
        by("pager"),
        by("clean"),
        by("smudge"),
        by("process"),
        by("textconv"),
        by("command"),
        by("driver")
    )
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
fn looks<'a>(name: &'a str) -> Vec<Vec<&'a str>> {
    let all: [&[&str]; 14] = [
        &["ws", "list"],
        &["ws", "show", name],
        &["ws", "path", name],
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
    let home = Home::new();
    let (trap, repo) = (Trap::new(&home), project(&home));
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
    let swapper = Swapper::start(&home, &dir, &places);
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
fn a_worktree_with_a_configuration_of_its_own_executes_nothing() {
    let home = Home::new();
    let (trap, repo) = (Trap::new(&home), project(&home));
    home.run(&repo, "git", &["config", "extensions.worktreeConfig", "true"]);
    let dir = workspace(&home, &repo, "w", &[]);
    let own = PathBuf::from(home.run(&dir, "git", &["rev-parse", "--absolute-git-dir"]).trim());
    let place = plant(&own.join("config.worktree"), &programs(&trap, "config.worktree"));
    trap.lay();
    let swapper = Swapper::start(&home, &dir, &[place]);
    look(&home, &trap, &repo, &dir, "w", sized(2, 20));
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]);
    trap.assert_untouched("ws rm");
    drop(swapper);
}

#[test]
fn a_clone_whose_configuration_is_swapped_executes_nothing() {
    let home = Home::new();
    let (trap, repo) = (Trap::new(&home), project(&home));
    let dir = workspace(&home, &repo, "c", &["--clone"]);
    let module = dir.join(".git/modules/sub/config");
    let with = |file: &Path, tag: &str| fs::read_to_string(file).unwrap() + &programs(&trap, tag);
    let places = [
        plant(&dir.join(".git/config"), &with(&dir.join(".git/config"), "clone")),
        plant(&module, &with(&module, "module")),
    ];
    trap.lay();
    let swapper = Swapper::start(&home, &dir, &places);
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
    let mut home = Home::new();
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
    let mut agent = home.command(&repo, toft_stories::toft_bin(), &run).stdout(Stdio::null()).spawn().unwrap();
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
    let home = Home::new();
    let trap = Trap::new(&home);
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
    let swapper = Swapper::start(&home, &dir, &[place]);
    look(&home, &trap, &repo, &dir, "w", sized(1, 10));
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]);
    trap.assert_untouched("ws rm");
    drop(swapper);
}

#[test]
fn a_mercurial_share_whose_repository_is_swapped_executes_nothing() {
    let home = Home::new();
    let trap = Trap::new(&home);
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
    let swapper = Swapper::start(&home, &dir, &places);
    // Mercurial takes long to start.
    for args in [&["ws", "list"][..], &["status"], &["ws", "gc", "-n"], &["doctor"], &["ws", "rm", "w"]] {
        for at in [&repo, &dir] {
            home.toft(at, args);
            trap.assert_untouched(&args.join(" "));
        }
    }
    drop(swapper);
}

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
        home.run(&repo, "git", &["add", "-A"]);
        home.run(&repo, "git", &["commit", "-q", "-m", "attributes"]);
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
            &["ws", "pool", "1"],
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
