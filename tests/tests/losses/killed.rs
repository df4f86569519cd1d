//! Workspaces in random dangerous states, taken down by commands that are killed at random moments.

use toft_stories::kept::{
    Bytes, begin_repository, create, every_byte, fill_submodule, left, lost, with_submodule, write,
};
use toft_stories::prelude::*;

/// A workspace in a mixture of dangerous states, and everything that somebody could miss of it.
struct Plot {
    repo: PathBuf,
    name: String,
    path: PathBuf,
    /// Where its directory is now, if somebody moved it by hand; gone, if they deleted it.
    by_hand: Option<Option<PathBuf>>,
    bytes: Bytes,
    /// What git alone keeps: HEAD, index, refs of its own, and for a clone all of them.
    git: Option<[String; 3]>,
    commits: BTreeSet<String>,
}

/// HEAD, index and refs of a checkout.
fn kept_by_git(home: &Home, dir: &Path, clone: bool) -> [String; 3] {
    let places: &[&str] = if clone { &["refs"] } else { &["refs/bisect", "refs/worktree", "refs/rewritten"] };
    let args = [&["for-each-ref", "--format=%(refname) %(objectname)", "--exclude=refs/toft"], places].concat();
    [&["rev-parse", "HEAD"][..], &["ls-files", "--stage"], &args].map(|args| home.run(dir, "git", args))
}

/// Every commit that a checkout's own logs name.
fn logged(dir: &Path) -> BTreeSet<String> {
    let own = match fs::read_to_string(dir.join(".git")) {
        Ok(text) => PathBuf::from(text.trim().trim_start_matches("gitdir: ")),
        Err(_) => dir.join(".git"),
    };
    let (mut found, mut look) = (BTreeSet::new(), vec![own.join("logs")]);
    while let Some(at) = look.pop() {
        match fs::read_dir(&at) {
            Ok(entries) => look.extend(entries.map(|entry| entry.unwrap().path())),
            Err(_) => {
                let text = fs::read_to_string(&at).unwrap_or_default();
                found.extend(text.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned));
            }
        }
    }
    found.retain(|oid| !oid.chars().all(|digit| digit == '0'));
    found
}

fn endanger(home: &Home, dir: &Path, clone: bool, n: usize, dice: &mut Dice) {
    let git = |args: &[&str]| home.run(dir, "git", args).trim().to_owned();
    let text = |what: &str| format!("{n} {what}\n");
    if dice.one_in(3) {
        write(&dir.join("src/f2.txt"), &text("amended"));
        git(&["commit", "-q", "-a", "-m", "amended"]);
        git(&["commit", "-q", "--amend", "--allow-empty", "-m", "amended again"]);
        git(&["reset", "-q", "--hard", "HEAD~1"]);
    }
    if dice.one_in(3) {
        git(&["checkout", "-q", "--detach"]);
        git(&["commit", "-q", "--allow-empty", "-m", &format!("detached {n}")]);
    }
    if dice.one_in(4) {
        git(&["bisect", "start", "HEAD", "HEAD~1"]);
    }
    if dice.one_in(3) {
        let oid = git(&["commit-tree", "-m", &format!("marked {n}"), "HEAD^{tree}"]);
        git(&["update-ref", "refs/worktree/mark", &oid]);
    }
    if clone {
        let oid = git(&["commit-tree", "-m", &format!("odd {n}"), "-p", "HEAD", "HEAD^{tree}"]);
        git(&["update-ref", "refs/odd/one", &oid]);
        git(&["branch", &format!("side{n}")]);
        let logged = git(&["commit-tree", "-m", &format!("logged {n}"), "-p", "HEAD", "HEAD^{tree}"]);
        git(&["update-ref", "-m", "forward", &format!("refs/heads/side{n}"), &logged]);
        git(&["branch", "-f", &format!("side{n}"), "HEAD"]);
        write(&dir.join("src/f3.txt"), &text("stashed"));
        git(&["stash", "-q"]);
    }
    if dice.one_in(2) {
        begin_repository(home, &dir.join("src"));
    }
    if dice.one_in(4) {
        begin_repository(home, &dir.join("vendor/inner"));
    }
    if dice.one_in(3) {
        fill_submodule(home, dir);
        match dice.below(3) {
            0 => write(&dir.join("lib/.env"), &text("secret")),
            1 => write(&dir.join("lib/lib.txt"), &text("changed")),
            _ => {}
        }
    }
    if dice.one_in(2) {
        write(&dir.join("staged.txt"), &text("staged"));
        git(&["add", "staged.txt"]);
        write(&dir.join("staged.txt"), &text("staged, then changed"));
    }
    if dice.one_in(2) {
        write(&dir.join("untracked/deep.txt"), &text("untracked"));
        write(&dir.join(".env"), &text("secret"));
        write(&dir.join("notes/findings.md"), &text("findings"));
        fs::create_dir(dir.join("empty")).unwrap();
    }
    if dice.one_in(3) {
        write(&dir.join("data/large.bin"), &text("x").repeat(400_000));
        write(&dir.join("target/app"), &text("built"));
    }
}

/// A workspace of git, by chance one that was moved or deleted by hand.
fn git_plot(home: &Home, repo: &Path, n: usize, dice: &mut Dice) -> Plot {
    let name = format!("plot{n}");
    let clone = dice.one_in(4);
    let instant = if may_mount() && dice.one_in(4) { "always" } else { "never" };
    fs::write(repo.join(".git/toft/config.toml"), format!("[workspaces]\ninstant = \"{instant}\"\n")).unwrap();
    let path = create(home, repo, &name, if clone { &["--clone"] } else { &[] });
    endanger(home, &path, clone, n, dice);
    let (git, commits, bytes) = (Some(kept_by_git(home, &path, clone)), logged(&path), every_byte(&path));
    let mut by_hand = None;
    if !clone && instant == "never" && dice.one_in(6) {
        let moved = home.path().join(format!("moved{n}"));
        by_hand = Some(match dice.one_in(2) {
            true => fs::rename(&path, &moved).map(|()| Some(moved)).unwrap(),
            false => fs::remove_dir_all(&path).map(|()| None).unwrap(),
        });
    }
    Plot { repo: repo.to_owned(), name, path, by_hand, bytes, git, commits }
}

fn hg_plot(home: &Home, repo: &Path, n: usize, dice: &mut Dice) -> Plot {
    let name = format!("share{n}");
    let path = create(home, repo, &name, &[]);
    match dice.below(4) {
        0 => write(&path.join(".env"), "SECRET\n"),
        1 => drop(begin_repository(home, &path.join("target/inner"))),
        2 => write(&path.join("a"), "changed\n"),
        _ => write(&path.join("target/app"), "built\n"),
    }
    let bytes = every_byte(&path);
    Plot { repo: repo.to_owned(), name, path, by_hand: None, bytes, git: None, commits: BTreeSet::new() }
}

fn hg_project(home: &Home) -> PathBuf {
    let repo = home.path().join("old");
    fs::create_dir(&repo).unwrap();
    home.run(&repo, "hg", &["init"]);
    write(&repo.join("a"), "a\n");
    write(&repo.join(".hgignore"), "syntax: glob\n.env\ntarget\n");
    home.run(&repo, "hg", &["commit", "-q", "-A", "-m", "first"]);
    home.toft(&repo, &["init"]).ok();
    repo
}

/// Workspaces in random dangerous states; gc and rm are killed at random moments. Every byte comes back, or was named as
/// left before it went.
#[test]
fn every_byte_is_there_or_was_named_though_tidying_up_is_killed() {
    let home = Home::new();
    let _unmount = Unmount(&home);
    let (repo, old) = (with_submodule(&home), hg_project(&home));
    let seed = std::env::var("TOFT_SEED").map_or_else(|_| u64::from(std::process::id()), |seed| seed.parse().unwrap());
    println!("TOFT_SEED={seed}");
    let mut dice = Dice::new(seed);
    let count = sized(10, 200);
    let plots: Vec<Plot> = (0..count)
        .map(|n| match n % 10 {
            9 => hg_plot(&home, &old, n, &mut dice),
            _ => git_plot(&home, &repo, n, &mut dice),
        })
        .collect();
    let (mut killed, wanted) = (0, sized(12, 300));
    // What was named as left when it went; a workspace that came back and went again names only what it had then.
    let mut named_before: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for n in 0..20 * wanted {
        if killed == wanted {
            break;
        }
        let plot = &plots[usize::try_from(dice.below(count as u64)).unwrap()];
        let (dir, args) = match n % 3 {
            0 => (&plot.repo, vec!["ws", "rm", &plot.name, "--rescue", "-q"]),
            1 if dice.one_in(2) => (&plot.repo, vec!["ws", "restore", &plot.name, "-q"]),
            _ => (&repo, vec!["ws", "gc", "--older-than", "0s", "-q"]),
        };
        let mut beside = home.start(dir, &args);
        thread::sleep(Duration::from_millis(5 + dice.below(150)));
        killed += usize::from(beside.try_wait().unwrap().is_none());
        beside.kill().unwrap();
        beside.wait().unwrap();
        for Plot { repo, name, .. } in &plots {
            named_before.entry(name.clone()).or_default().extend(left(&home, repo, name));
        }
    }
    for dir in [&repo, &old] {
        home.toft(dir, &["ws", "gc", "--older-than", "0s", "-q"]).ok();
    }
    // Only rescues hold on to anything now.
    home.run(&repo, "git", &["reflog", "expire", "--expire=now", "--all"]);
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    let (mut back, mut stayed, mut clean) = (0, 0, 0);
    for plot in &plots {
        let Plot { repo, name, path, .. } = plot;
        let shown = home.toft(repo, &["ws", "list", name, "--json"]).data();
        let clone = shown["kind"] == "clone";
        if let Some(Some(moved)) = &plot.by_hand {
            assert_eq!(lost(&plot.bytes, &every_byte(moved), &[]), Vec::<String>::new(), "{name} where it was moved");
        }
        if path.exists() && plot.by_hand.is_none() && shown["rescue"].is_null() {
            assert!(plot.git.is_none(), "{name} stays, though everything in it can be put away: {shown}");
            assert_eq!(lost(&plot.bytes, &every_byte(path), &[]), Vec::<String>::new(), "{name}");
            stayed += 1;
            continue;
        }
        let mut named = left(&home, repo, name);
        named.extend(named_before.remove(name).unwrap_or_default());
        if shown["rescue"].is_null() {
            clean += 1;
            let only: Vec<_> =
                plot.bytes.iter().filter(|(file, _)| !named.iter().any(|left| file.starts_with(left))).collect();
            let tracked = home.command(repo, "git", &["ls-files"]).output().unwrap();
            let tracked = String::from_utf8_lossy(&tracked.stdout).into_owned();
            for (file, (mode, _)) in only.iter().filter(|_| plot.git.is_some() && plot.by_hand.is_none()) {
                let dir = mode & 0o170_000 == 0o040_000;
                let known = tracked.lines().any(|line| Path::new(line) == file.as_path());
                assert!(dir || known || file.starts_with("lib"), "{name}: {} is nowhere: {shown}", file.display());
            }
            continue;
        }
        if shown["state"] == "removed" {
            home.toft(repo, &["ws", "restore", name]).ok();
        }
        if plot.by_hand.is_none() {
            let differs = lost(&plot.bytes, &every_byte(path), &named);
            // What a submodule has that its remote has too is not put away.
            let differs: Vec<_> = differs.into_iter().filter(|line| !line.starts_with("lib")).collect();
            assert_eq!(differs, Vec::<String>::new(), "{name}");
            for secret in ["lib/.env", "lib/lib.txt"] {
                let before = plot.bytes.get(Path::new(secret)).map(|(_, bytes)| bytes.clone());
                if before.as_ref().is_some_and(|bytes| bytes != b"library\n") {
                    assert_eq!(fs::read(path.join(secret)).ok(), before, "{name} {secret}");
                }
            }
        }
        let now = kept_by_git(&home, path, clone);
        assert_eq!(Some(&now), plot.git.as_ref(), "{name}");
        for commit in &plot.commits {
            home.run(path, "git", &["cat-file", "-e", commit]);
        }
        back += 1;
    }
    println!(
        "{count} workspaces, killed {killed} times: {back} came back, {stayed} stayed, {clean} held nothing of their own"
    );
    assert!(back > count / 3 && killed == wanted);
}

/// Calls that change what is in a directory.
const CHANGING: [&str; 9] = ["mkdir", "rename", "renameat2", "unlink", "rmdir", "symlink", "link", "mount", "umount2"];

/// Runs a command that is killed when it makes a call for the `when`th time; whether it was.
fn killed_at(home: &Home, repo: &Path, call: &str, when: usize, args: &[&str]) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    let (log, bin) = (home.path().join("strace.log"), toft_bin());
    let inject = format!("inject={call}:signal=KILL:when={when}");
    let words = ["-o", log.to_str().unwrap(), "-e", &format!("trace={call}"), "-e", &inject, bin.to_str().unwrap()];
    let mut command = home.command(repo, "strace", &[&words[..], args].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().signal() == Some(9)
}

/// At every call in turn, not at random: what a crash leaves half done, the next command does.
#[test]
fn killed_at_any_call_that_changes_a_directory_the_next_command_goes_on() {
    let (home, repo) = Home::with(toft_stories::kept::project);
    let _unmount = Unmount(&home);
    let kinds: &[(&str, &[&str])] = match may_mount() {
        true => &[("never", &[]), ("always", &[]), ("never", &["--clone"])],
        false => &[("never", &[]), ("never", &["--clone"])],
    };
    let mut kills = 0;
    for (kind, (instant, more)) in kinds.iter().enumerate() {
        fs::write(repo.join(".git/toft/config.toml"), format!("[workspaces]\ninstant = \"{instant}\"\n")).unwrap();
        create(&home, &repo, &format!("first{kind}"), more);
        for call in CHANGING {
            for when in (1..).step_by(sized(6, 1)) {
                let name = format!("w{kind}-{call}-{when}");
                let told = format!("{instant} {more:?}, {call} for the {when}th time");
                let making = [&["ws", "create", "--name", &name, "-q"][..], more].concat();
                let made = killed_at(&home, &repo, call, when, &making);
                let said = home.toft(&repo, &making);
                assert!(said.code == 0 || said.err.contains("error[exists]"), "{told}: {said:?}");
                let path = PathBuf::from(home.toft(&repo, &["ws", "path", &name]).ok().trim());
                assert_eq!(home.run(&path, "git", &["status", "--porcelain"]), "", "{told}");
                write(&path.join("work.txt"), &name);
                let bytes = every_byte(&path);
                let removed = killed_at(&home, &repo, call, when, &["ws", "rm", &name, "--rescue"]);
                home.toft(&repo, &["ws", "rm", &name, "--rescue"]);
                assert!(!path.exists(), "{told}");
                let restored = killed_at(&home, &repo, call, when, &["ws", "restore", &name]);
                let said = home.toft(&repo, &["ws", "restore", &name]);
                assert!(said.code == 0 || said.err.contains(" is ready"), "{told}: {said:?}");
                assert_eq!(lost(&bytes, &every_byte(&path), &[]), Vec::<String>::new(), "{told}");
                assert_eq!(home.run(&path, "git", &["status", "--porcelain"]), "?? work.txt\n", "{told}");
                kills += [made, removed, restored].iter().filter(|killed| **killed).count();
                if !(made || removed || restored) {
                    break;
                }
            }
        }
    }
    println!("{kills} kills");
    assert!(kills > 50);
    home.toft(&repo, &["doctor"]).says("none damaged");
}
