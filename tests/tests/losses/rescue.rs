//! Nothing lost: workspaces in every dangerous state are taken down, killed in the middle, and come back byte for byte.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use toft_stories::kept;
use toft_stories::prelude::*;
use toft_stories::workspaces::Whole;

fn project(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    for n in 0..12 {
        fs::write(repo.join(format!("f{n}.txt")), format!("line {n}\n").repeat(20)).unwrap();
    }
    fs::write(repo.join("run.sh"), "#!/bin/sh\n").unwrap();
    chmod(&repo.join("run.sh"), 0o755);
    fs::write(repo.join(".gitignore"), "target/\n.env\n*.local\n").unwrap();
    fs::write(repo.join(".gitattributes"), "*.crlf text eol=crlf\n").unwrap();
    fs::write(repo.join("dos.crlf"), "one\r\ntwo\r\n").unwrap();
    commit_all(home, &repo, "files");
    let library = home.git("library");
    fs::write(library.join("lib.txt"), "library\n").unwrap();
    commit_all(home, &library, "library");
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../library", "lib"];
    home.run(&repo, "git", &add);
    home.run(&repo, "git", &["commit", "-q", "-m", "with a library"]);
    repo
}

/// Puts a workspace into a mixture of dangerous states.
fn endanger(home: &Home, dir: &Path, n: usize, dice: &mut Dice) {
    let git = |args: &[&str]| {
        home.run(dir, "git", args);
    };
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let commit = |name: &str| {
        fs::write(dir.join(name), format!("{n} {name}\n")).unwrap();
        home.run(dir, "git", &["add", name]);
        home.run(dir, "git", &["commit", "-q", "-m", name]);
    };
    if dice.one_in(3) {
        commit("committed.txt");
    }
    if dice.one_in(4) {
        commit("amended.txt");
        write("amended.txt", "again\n");
        git(&["commit", "-q", "--amend", "-a", "-m", "amended"]);
    }
    if dice.one_in(5) {
        commit("dropped.txt");
        git(&["reset", "-q", "--hard", "HEAD~1"]);
    }
    if dice.one_in(4) {
        write("f1.txt", &format!("stashed {n}\n"));
        git(&["stash", "-q"]);
    }
    if dice.one_in(6) {
        git(&["checkout", "-q", "--detach"]);
        commit("detached.txt");
    }
    if dice.one_in(4) && dir.join(".git").is_file() {
        let run = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"];
        git(&run);
    }
    match dice.below(6) {
        0 => {
            // A merge that stopped in the middle.
            git(&["branch", "-q", &format!("other{n}")]);
            write("f2.txt", "ours\n");
            git(&["commit", "-q", "-a", "-m", "ours"]);
            let ours = home.run(dir, "git", &["rev-parse", "HEAD"]);
            git(&["checkout", "-q", "--detach", &format!("other{n}")]);
            write("f2.txt", "theirs\n");
            git(&["commit", "-q", "-a", "-m", "theirs"]);
            assert!(!home.command(dir, "git", &["merge", "-q", ours.trim()]).output().unwrap().status.success());
            write("f3.txt", "beside the conflict\n");
        }
        1 => {
            // A rebase that stopped in the middle.
            let onto = home.run(dir, "git", &["rev-parse", "HEAD"]);
            write("f2.txt", "ours\n");
            git(&["commit", "-q", "-a", "-m", "ours"]);
            let ours = home.run(dir, "git", &["rev-parse", "HEAD"]);
            git(&["checkout", "-q", "--detach", onto.trim()]);
            write("f2.txt", "theirs\n");
            git(&["commit", "-q", "-a", "-m", "theirs"]);
            assert!(!home.command(dir, "git", &["rebase", "-q", ours.trim()]).output().unwrap().status.success());
        }
        _ => {}
    }
    let unmerged = !home.run(dir, "git", &["ls-files", "-u"]).is_empty();
    if dice.one_in(2) && !unmerged {
        write("staged.txt", "staged\n");
        git(&["add", "staged.txt"]);
        write("staged.txt", "staged, then changed\n");
    }
    if dice.one_in(2) && !unmerged {
        write("as-staged.txt", "staged and left so\n");
        git(&["add", "as-staged.txt"]);
        git(&["mv", "f11.txt", "moved by git.txt"]);
        git(&["rm", "-q", "f0.txt"]);
    }
    if dice.one_in(3) {
        write("f4.txt", "changed\n");
    }
    if dice.one_in(6) && !unmerged {
        // A directory became a file, and the other way round.
        git(&["rm", "-q", "-r", "--cached", "run.sh"]);
        fs::remove_file(dir.join("run.sh")).unwrap();
        write("run.sh/was-a-file", "deep\n");
        git(&["add", "run.sh"]);
    }
    if dice.one_in(3) {
        fs::remove_file(dir.join("f5.txt")).unwrap();
    }
    if dice.one_in(4) && !unmerged {
        git(&["rm", "-q", "--cached", "f6.txt"]);
    }
    if dice.one_in(5) {
        git(&["update-index", "--assume-unchanged", "f7.txt"]);
        write("f7.txt", "git does not look\n");
    }
    if dice.one_in(5) {
        // A file became a directory.
        fs::remove_file(dir.join("f8.txt")).unwrap();
        write("f8.txt/inside", "deep\n");
    }
    if dice.one_in(2) {
        write("notes/deep/er.md", &format!("notes {n}\n"));
        fs::write(dir.join(OsStr::from_bytes(b"odd \"name\"\n\xff.txt")), "odd\n").unwrap();
        write("empty", "");
        fs::write(dir.join("binary.bin"), [0, 159, 146, 150, 10, 13]).unwrap();
    }
    if dice.one_in(3) {
        std::os::unix::fs::symlink("../nowhere/\u{e9}", dir.join("link")).unwrap();
        write("secret.key", "key\n");
        chmod(&dir.join("secret.key"), 0o600);
        chmod(&dir.join("f9.txt"), 0o640);
        chmod(&dir.join("f10.txt"), 0o755);
    }
    if dice.one_in(3) {
        write(".env", "TOKEN=1\n");
        write("mine.local", "settings\n");
    }
    if dice.one_in(3) {
        write("target/debug/artefact", "large and boring\n");
    }
    if dice.one_in(8) {
        write("dos.crlf", "one\ntwo\n");
    }
    if dice.one_in(6) && !unmerged {
        write("intended.txt", "to be added\n");
        git(&["add", "-N", "intended.txt"]);
    }
}

/// Every commit that somebody could miss.
fn commits(home: &Home, dir: &Path) -> Vec<String> {
    let args = ["log", "--walk-reflogs", "--format=%H", "HEAD"];
    let logged = home.run(dir, "git", &args);
    logged.lines().map(str::to_owned).collect()
}

struct Plot {
    name: String,
    path: PathBuf,
    whole: Whole,
    commits: Vec<String>,
}

#[test]
fn no_byte_is_lost_though_tidying_up_is_killed_anywhere() {
    let (home, repo) = Home::with(project);
    let _unmount = Unmount(&home);
    let seed = std::env::var("TOFT_SEED").map_or_else(|_| u64::from(std::process::id()), |seed| seed.parse().unwrap());
    println!("TOFT_SEED={seed}");
    let mut dice = Dice::new(seed);
    let count = sized(24, 100);
    let mut plots = Vec::new();
    for n in 0..count {
        let name = format!("plot{n}");
        let instant = if may_mount() && dice.one_in(3) { "always" } else { "never" };
        let config = format!("[workspaces]\ninstant = \"{instant}\"\n");
        fs::write(repo.join(".git/toft/config.toml"), config).unwrap();
        let mut args = vec!["ws", "create", "--name", &name, "-q"];
        if dice.one_in(6) {
            args.push("--clone");
        }
        let path = PathBuf::from(home.toft(&repo, &args).ok().trim());
        endanger(&home, &path, n, &mut dice);
        plots.push(Plot { whole: whole(&home, &path), commits: commits(&home, &path), path, name });
    }
    // Some land, as one commit or as several.
    for plot in plots.iter().step_by(5) {
        let bring = ["fetch", "-q", plot.path.to_str().unwrap(), "HEAD"];
        home.run(&repo, "git", &bring);
        let landed = home.command(&repo, "git", &["merge", "-q", "--squash", "FETCH_HEAD"]).output().unwrap();
        match landed.status.success() {
            true => drop(home.command(&repo, "git", &["commit", "-q", "-m", "landed"]).output().unwrap()),
            false => drop(home.run(&repo, "git", &["reset", "-q", "--hard"])),
        }
    }
    let kills = sized(40, 400);
    let mut killed = 0;
    for _ in 0..kills {
        let args = ["ws", "gc", "--older-than", "0s", "-q"];
        let mut tidying = home.start(&repo, &args);
        thread::sleep(Duration::from_millis(5 + dice.below(250)));
        killed += usize::from(tidying.try_wait().unwrap().is_none());
        tidying.kill().unwrap();
        tidying.wait().unwrap();
    }
    // A git that outlived its killed toft may be in a workspace for a moment.
    let mut stay: BTreeMap<String, Value> = BTreeMap::new();
    let mut passes = 0;
    loop {
        let rows = home.toft(&repo, &["ws", "gc", "--older-than", "0s", "--json"]).data();
        let rows = rows.as_array().unwrap();
        stay.extend(rows.iter().map(|row| (row["name"].as_str().unwrap().to_owned(), row.clone())));
        if rows.iter().all(|row| row["gone"] == false && !row["why"].as_str().unwrap().contains("process")) {
            break;
        }
        passes += 1;
        assert!(passes < 20, "gc after gc still finds something: {rows:?}");
        thread::sleep(Duration::from_millis(200));
    }
    // Only the rescues hold on to anything now.
    home.run(&repo, "git", &["stash", "clear"]);
    home.run(&repo, "git", &["reflog", "expire", "--expire=now", "--all"]);
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    let (mut back, mut clean) = (0, 0);
    for plot in &plots {
        if plot.path.exists() {
            assert!(!stay[&plot.name]["gone"].as_bool().unwrap(), "{}", plot.name);
            panic!("{} was neither put away nor clean: {}", plot.name, stay[&plot.name]);
        }
        let shown = home.toft(&repo, &["ws", "list", &plot.name, "--json"]).data();
        if shown["rescue"].is_null() {
            assert!(plot.whole.is_clean(), "{} was not clean, and nobody knows where it is", plot.name);
            for commit in &plot.commits {
                home.run(&repo, "git", &["cat-file", "-e", commit]);
            }
            clean += 1;
            continue;
        }
        home.toft(&repo, &["ws", "restore", &plot.name]).ok();
        let mut now = whole(&home, &plot.path);
        now.forget_stash_of_repository(&plot.whole, &plot.path);
        assert_eq!(now.differences(&plot.whole), Vec::<String>::new(), "{}", plot.name);
        for commit in &plot.commits {
            home.run(&plot.path, "git", &["cat-file", "-e", commit]);
        }
        back += 1;
    }
    println!("{count} workspaces, gc killed {killed} times: {back} came back byte for byte, {clean} were clean");
    assert!(back > count / 2 && killed > 0);
    home.toft(&repo, &["doctor"]).ok();
}

#[test]
fn one_whose_making_was_killed_is_made_again() {
    let (home, repo) = Home::with(project);
    let _unmount = Unmount(&home);
    let mut dice = Dice::new(u64::from(std::process::id()));
    let mut killed = 0;
    for n in 0..sized(30, 300) {
        let instant = if may_mount() && dice.one_in(2) { "always" } else { "never" };
        fs::write(repo.join(".git/toft/config.toml"), format!("[workspaces]\ninstant = \"{instant}\"\n")).unwrap();
        let name = format!("plot{n}");
        let mut args = vec!["ws", "create", "--name", &name, "-q"];
        if dice.one_in(5) {
            args.push("--clone");
        }
        let mut making = home.start(&repo, &args);
        thread::sleep(Duration::from_millis(dice.below(40)));
        let done = making.try_wait().unwrap().is_some();
        making.kill().unwrap();
        making.wait().unwrap();
        killed += usize::from(!done);
        let path = match home.toft(&repo, &args) {
            said if said.code == 0 => said.out,
            said => {
                assert!(said.err.contains("error[exists]"), "{said:?}");
                home.toft(&repo, &["ws", "path", &name]).ok()
            }
        };
        assert_eq!(home.run(Path::new(path.trim()), "git", &["status", "--porcelain"]), "", "{name} is whole");
        assert_eq!(home.run(Path::new(path.trim()), "git", &["branch", "--show-current"]).trim(), name);
    }
    assert!(killed > 0);
    home.toft(&repo, &["doctor"]).says("none damaged");
}

/// Before the first there is not even a directory to put workspaces in.
#[test]
fn the_very_first_whose_making_was_killed_is_made_again() {
    for n in 0..sized(12, 100) as u64 {
        let home = Home::new();
        let repo = project(&home);
        let args = ["ws", "create", "--name", "first", "-q"];
        let mut making = home.start(&repo, &args);
        thread::sleep(Duration::from_millis(n % 12));
        making.kill().unwrap();
        making.wait().unwrap();
        let said = home.toft(&repo, &args);
        assert!(said.code == 0 || said.err.contains("error[exists]"), "{said:?}");
    }
}

/// Rescues are listed with age and size, go by age only if configuration says so, and can be deleted.
#[test]
fn rescues_are_listed_expire_and_can_be_deleted() {
    let (home, repo) = Home::with(kept::project);
    for name in ["a", "b"] {
        let dir = kept::create(&home, &repo, name, &[]);
        kept::write(&dir.join("work.txt"), &"work\n".repeat(1_000));
        kept::write(&dir.join("data/large"), &"x".repeat(2 << 20));
        home.toft(&repo, &["ws", "rescue", name]).ok();
        home.toft(&repo, &["ws", "rm", name, "--rescue"]).ok();
    }
    let rows = home.toft(&repo, &["ws", "restore", "--json"]).data();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2, "what was put away already is not put away again: {rows:?}");
    let row = rows.iter().find(|row| row["workspace"] == "a").expect("a's rescue");
    assert!(row["bytes"].as_u64().unwrap() > 5_000 && row["age_s"].as_u64().unwrap() < 600, "{rows:?}");
    assert!(row["holds"].as_str().unwrap().contains("1 files"), "{rows:?}");
    assert!(row["left"].as_str().unwrap().contains("data/ (2.1 MB)"), "{rows:?}");
    home.toft(&repo, &["ws", "restore"]).says_all(&["a --at 1", "2 rescues"]);
    home.toft(&repo, &["ws", "gc"]).ok();
    assert_eq!(home.run(&repo, "git", &["for-each-ref", "refs/toft/rescue"]).lines().count(), 2, "never by itself");
    home.toft(&repo, &["ws", "gc", "--rescue", "a", "--at", "7"]).fails(3);
    home.toft(&repo, &["ws", "gc", "--rescue", "a", "--at", "1"]).ok();
    assert!(home.toft(&repo, &["ws", "restore", "a"]).fails(3).contains("nothing of a was put away"));
    let config = repo.join(".git/toft/config.toml");
    fs::write(&config, "[workspaces]\nrescue_max_age = \"0s\"\n").unwrap();
    home.toft(&repo, &["ws", "gc", "-n"]).says("would remove b --at 1");
    home.toft(&repo, &["ws", "gc"]).ok();
    assert_eq!(home.run(&repo, "git", &["for-each-ref", "refs/toft/rescue", "refs/toft/rescued"]), "");
    // A file that travels in the tree has no say in it.
    fs::remove_file(&config).unwrap();
    kept::write(&repo.join(".toft/config.toml"), "[workspaces]\nrescue_max_age = \"0s\"\n");
    home.toft(&repo, &["ws", "list"]).fails(2);
}

/// Directories among workspaces that toft did not make stay, whatever they are called; so does what is mounted there.
#[test]
fn only_what_toft_threw_away_is_deleted() {
    let (home, repo) = Home::with(kept::project);
    let dir = kept::create(&home, &repo, "w", &[]);
    let (mine, trash) = (dir.with_file_name(".trash-mine"), dir.with_file_name(".trash-17.gone-ws_a"));
    kept::write(&mine.join("p"), "mine\n");
    kept::write(&trash.join("x/p"), "thrown away\n");
    let other = home.path().join("other");
    kept::write(&other.join("v"), "elsewhere\n");
    let _unmount = Unmount(&home);
    if may_mount() {
        home.run(&repo, "mount", &["--bind", other.to_str().unwrap(), trash.join("x").to_str().unwrap()]);
    }
    home.toft(&repo, &["ws", "gc"]).ok();
    if may_mount() {
        // Long enough for what is mounted there to be deleted with the rest.
        thread::sleep(Duration::from_millis(500));
        home.run(&repo, "umount", &[trash.join("x").to_str().unwrap()]);
        home.toft(&repo, &["ws", "gc"]).ok();
    }
    until(20, "it is deleted", || !trash.exists());
    assert!(mine.join("p").exists() && other.join("v").exists());
}

/// A repository in an ignored directory does not take the files beside it along.
#[test]
fn small_files_beside_a_repository_in_an_ignored_directory_come_back() {
    let (home, repo) = Home::with(kept::project);
    let dir = kept::create(&home, &repo, "w", &[]);
    kept::begin_repository(&home, &dir.join("notes/r"));
    kept::write(&dir.join("notes/todo.txt"), "todo\n");
    let before = kept::every_byte(&dir);
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    assert!(!dir.exists());
    home.toft(&repo, &["ws", "restore", "w"]).ok();
    assert_eq!(kept::lost(&before, &kept::every_byte(&dir), &[]), [""; 0]);
}

/// Every look names a repository in a tracked directory, not only the first.
#[test]
fn a_look_from_memory_names_a_repository_in_a_tracked_directory() {
    let (home, repo) = Home::with(kept::project);
    let dir = kept::create(&home, &repo, "w", &[]);
    home.toft(&repo, &["ws", "list"]).ok();
    kept::begin_repository(&home, &dir.join("src"));
    for _ in 0..3 {
        home.toft(&repo, &["ws", "list"]).says("src/ is a repository of its own");
    }
}
