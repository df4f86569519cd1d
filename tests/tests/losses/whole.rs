//! A workspace is whole or not handed out: special repositories, overlays that behave, mounts that went, bases that nobody can
//! change, repositories that were moved.

use toft_stories::kept::create;
use toft_stories::prelude::*;
use toft_stories::workspaces::fill;

fn git(home: &Home, dir: &Path, args: &[&str]) -> String {
    home.run(dir, "git", args)
}

/// A repository with some files and commits, to be cloned from.
fn origin(home: &Home) -> PathBuf {
    let dir = home.git("origin");
    fill(&dir, 20);
    git(home, &dir, &["add", "."]);
    git(home, &dir, &["commit", "-q", "-m", "files"]);
    for n in 0..3 {
        fs::write(dir.join("a.txt"), format!("{n}\n")).unwrap();
        git(home, &dir, &["add", "."]);
        git(home, &dir, &["commit", "-q", "-m", &format!("change {n}")]);
    }
    git(home, &dir, &["config", "uploadpack.allowFilter", "true"]);
    dir
}

fn cloned(home: &Home, origin: &Path, name: &str, how: &str) -> PathBuf {
    let url = format!("file://{}", origin.display());
    git(home, home.path(), &["clone", "-q", how, &url, name]);
    let dir = home.path().join(name);
    home.toft(&dir, &["init"]).ok();
    dir
}

/// A repository whose workspaces are instant.
fn instant(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    fill(&repo, 30);
    fs::write(repo.join(".gitignore"), "target/\n.env\n").unwrap();
    git(home, &repo, &["add", "."]);
    git(home, &repo, &["commit", "-q", "-m", "files"]);
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"always\"\n").unwrap();
    repo
}

fn mounts_at(path: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().filter(|line| line.split(' ').nth(1) == path.to_str()).count()
}

fn unmount(home: &Home, path: &Path) {
    home.run(home.path(), "umount", &[path.to_str().unwrap()]);
}

#[test]
fn a_clone_of_a_shallow_repository_is_whole() {
    let (home, from) = Home::with(origin);
    let repo = cloned(&home, &from, "shallow", "--depth=1");
    home.toft(&repo, &["add", "A task"]).ok();
    let path = home.claim_workspace(&repo, &["--clone"]);
    assert_eq!(fs::read_to_string(path.join("a.txt")).unwrap(), "2\n");
    assert_eq!(git(&home, &path, &["status", "--porcelain"]), "");
    assert_eq!(git(&home, &path, &["rev-parse", "HEAD"]), git(&home, &repo, &["rev-parse", "HEAD"]));
    git(&home, &path, &["fsck", "--connectivity-only"]);
    // Everything that holds for a clone holds for this one.
    let c = create(&home, &repo, "c", &["--clone"]);
    fs::write(c.join("y"), "y\n").unwrap();
    git(&home, &c, &["add", "."]);
    git(&home, &c, &["commit", "-q", "-m", "more"]);
    fs::write(c.join("z"), "z\n").unwrap();
    let before = whole(&home, &c);
    home.toft(&repo, &["ws", "rm", "c", "--rescue"]).ok();
    home.toft(&repo, &["ws", "restore", "c"]).ok();
    assert_eq!(whole(&home, &c).differences(&before), Vec::<String>::new());
}

#[test]
fn what_a_partial_clone_lacks_is_refused_with_the_command_that_gets_it() {
    let (home, from) = Home::with(origin);
    let repo = cloned(&home, &from, "partial", "--filter=blob:none");
    let w = create(&home, &repo, "w", &[]);
    assert_eq!(git(&home, &w, &["status", "--porcelain"]), "", "what is there is enough for this one");
    let next = format!("git -C {} fetch --refetch --no-filter", repo.display());
    for args in [&["old", "--base", "origin/main~2"] as &[&str], &["c", "--clone"]] {
        let said = home.toft(&repo, &[&["ws", "create", "--name"], args].concat());
        assert!(said.err.contains("not_whole") && said.err.contains(&next), "{said:?}");
        let name = args[0];
        assert!(!w.with_file_name(name).exists(), "nothing is left of {name}");
    }
    home.run(&repo, "git", &["fetch", "-q", "--refetch", "--no-filter"]);
    let old = create(&home, &repo, "old", &["--base", "origin/main~2"]);
    assert_eq!(fs::read_to_string(old.join("a.txt")).unwrap(), "0\n");
    let c = create(&home, &repo, "c", &["--clone"]);
    assert_eq!(fs::read_to_string(c.join("a.txt")).unwrap(), "2\n");
    git(&home, &c, &["fsck", "--connectivity-only"]);
}

/// In a mount namespace of its own, first lets go of what other stories have mounted: they could not mount it again.
const APART: &str =
    "grep ' /tmp/' /proc/mounts | cut -d' ' -f2 | grep -v \"^$TOFT_STORY\" | xargs -r -n1 umount -l 2>/dev/null";

/// Runs a script as a user who may not mount but may use FUSE; nothing if this machine cannot do that.
fn as_fuse_user(home: &Home, dir: &Path, script: &str) -> Option<String> {
    let around = format!(
        "{APART}; mknod \"$0.dev\" c 10 229 && chmod 666 \"$0.dev\" && mount --bind \"$0.dev\" /dev/fuse && \
                  exec setpriv --reuid 1000 --regid 1000 --clear-groups sh -c \"$1\""
    );
    let base = home.path().join("fuse").display().to_string();
    let run = |script: &str| {
        let _ = fs::remove_file(format!("{base}.dev"));
        let args = ["-m", "--propagation", "private", "sh", "-c", &around, &base, script];
        home.command(dir, "unshare", &args).env("TOFT", toft_bin()).output().unwrap()
    };
    let can = run("command -v fuse-overlayfs fusermount3 && test -w /dev/fuse");
    if !can.status.success() {
        println!("skipped: no user here can use FUSE");
        return None;
    }
    let output = run(script);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[test]
fn an_overlay_that_cannot_rename_directories_is_not_used_and_it_says_why() {
    let (home, repo) = Home::with(instant);
    home.run(home.path(), "chown", &["-R", "1000:1000", home.path().to_str().unwrap()]);
    let script = "set -e; \"$TOFT\" ws create --name w; D=$(\"$TOFT\" ws path w); cd \"$D\"; \
                  git mv src/d0 src/by-git; python3 -c 'import os; os.rename(\"src\", \"moved\"); print(\"renamed\")'; \
                  cd -; \"$TOFT\" doctor; \
                  \"$TOFT\" ws create --name again -q; \"$TOFT\" ws rm w --rescue; \
                  \"$TOFT\" add Task -q; \
                  \"$TOFT\" run --once -- sh -c 'echo hello > greeting; git add .; git commit -qm g; echo left > left'; \
                  \"$TOFT\" ws list; \
                  unshare -Ur -m sh -c '\"$TOFT\" ws create --name n -q; echo work > $(\"$TOFT\" ws path n)/work'; \
                  cat $(\"$TOFT\" ws path n)/work";
    let Some(said) = as_fuse_user(&home, &repo, script) else { return };
    assert!(said.contains("renamed"), "{said}");
    assert!(said.contains("fuse-overlayfs: directories cannot be renamed"), "{said}");
    let doctor = said.lines().find(|line| line.starts_with("ok    workspaces")).unwrap();
    assert!(doctor.contains("created as") && doctor.contains("directories cannot be renamed"), "{doctor}");
    assert!(said.contains("1 untracked, 1 commit not landed"), "{said}");
    assert!(said.contains("\nwork\n"), "one that was made in a user namespace is there outside: {said}");
}

#[test]
fn doctor_says_how_workspaces_are_made_and_why() {
    let (home, repo) = Home::with_repository("api");
    let _unmount = Unmount(&home);
    let row = |repo: &Path| {
        let said = home.toft(repo, &["doctor"]).out;
        said.lines().find(|line| line.contains("  workspaces  ")).unwrap().to_owned()
    };
    create(&home, &repo, "w", &[]);
    assert!(row(&repo).contains("created as plain checkouts: this one is small or sparse"), "{}", row(&repo));
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"never\"\n").unwrap();
    assert!(row(&repo).contains("workspaces.instant is \"never\""), "{}", row(&repo));
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"always\"\n").unwrap();
    if may_mount() {
        assert!(row(&repo).contains("created as overlayfs"), "{}", row(&repo));
    }
}

#[test]
fn an_overlay_does_what_programs_expect_of_a_directory() {
    let (home, repo) = Home::with(instant);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let w = create(&home, &repo, "w", &[]);
    let script = r#"
import os, fcntl, mmap, sqlite3, tempfile
os.rename("src", "moved"); assert len(os.listdir("moved/d0")) == 30
os.rename("moved", "src"); os.rename("src/d0", "src/d9"); os.mkdir("src/d0")
os.link("src/d9/f1.txt", "linked"); open("linked", "w").write("both")
assert open("src/d9/f1.txt").read() == "both" and os.stat("linked").st_nlink == 2
f = open("src/d9/f2.txt", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:4] = b"MAPS"; m.flush()
assert open("src/d9/f2.txt").read(4) == "MAPS"
a, b = open("src/d9/f3.txt", "r+"), open("src/d9/f3.txt", "r+")
fcntl.flock(a, fcntl.LOCK_EX)
try: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB); raise SystemExit("flock does not hold")
except BlockingIOError: pass
fcntl.lockf(a, fcntl.LOCK_EX)
if os.fork() == 0:
    try: fcntl.lockf(open("src/d9/f3.txt", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
    except BlockingIOError: os._exit(0)
assert os.wait()[1] == 0
d = sqlite3.connect("db"); d.execute("pragma journal_mode=wal"); d.execute("create table t(x)"); d.commit()
"#;
    home.run(&w, "python3", &["-c", script]);
    git(&home, &w, &["checkout", "-q", "-f", "."]);
    git(&home, &w, &["clean", "-fdq"]);
    fs::write(w.join("src/d0/f4.txt"), "c\n").unwrap();
    git(&home, &w, &["commit", "-q", "-a", "-m", "c"]);
    fs::write(w.join("src/d0/f5.txt"), "d\n").unwrap();
    git(&home, &w, &["stash", "-q"]);
    git(&home, &w, &["stash", "pop", "-q"]);
    git(&home, &w, &["commit", "-q", "-a", "-m", "d"]);
    git(&home, &w, &["rebase", "-q", "--force-rebase", "HEAD~1"]);
    git(&home, &w, &["gc", "-q"]);
    git(&home, &w, &["mv", "src", "by-git"]);
    git(&home, &w, &["commit", "-q", "-m", "moved"]);
    git(&home, &w, &["checkout", "-q", "HEAD~1"]);
    git(&home, &w, &["checkout", "-q", "w"]);
    assert_eq!(git(&home, &w, &["status", "--porcelain"]), "");
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]).ok();
}

/// The process that serves a layer.
fn daemon(id: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&words);
        text.contains("fuse-overlayfs") && text.contains(id)
    })
}

#[test]
fn a_workspace_whose_daemon_was_killed_is_taken_down_and_mounted_again() {
    let (home, repo) = Home::with(instant);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    for look in ["list", "path", "rm", "gc", "rescue"] {
        // As for a user who may not mount, when a crash came before the implementation was recorded.
        let w = create(&home, &repo, look, &[]);
        let id = home.toft(&repo, &["ws", "list", look, "--json"]).data()["id"].as_str().unwrap().to_owned();
        let layers = w.with_file_name(".layers").join(&id);
        let base = fs::read_dir(w.with_file_name(".bases")).unwrap().flatten().find(|entry| entry.path().is_dir());
        unmount(&home, &w);
        let _ = fs::remove_file(layers.join("kind"));
        let (layer, base) = (layers.display(), base.unwrap().path());
        let options = format!("lowerdir={}/tree,upperdir={layer}/up,workdir={layer}/work", base.display());
        let args = ["-o", &options, w.to_str().unwrap()];
        let mounted = home.command(home.path(), "fuse-overlayfs", &args).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            println!("skipped: no FUSE here");
            return;
        }
        fs::write(w.join("work.txt"), "work\n").unwrap();
        fs::write(w.join("src/d0/f1.txt"), "changed\n").unwrap();
        git(&home, &w, &["add", "src"]);
        let pid = daemon(&id).unwrap();
        home.run(home.path(), "kill", &["-9", &pid.to_string()]);
        until(5, "it is dead", || fs::metadata(&w).is_err());
        match look {
            "list" => {
                home.toft(&repo, &["ws", "list"]).says("1 staged, 1 untracked");
            }
            "rm" => drop(home.toft(&repo, &["ws", "rm", look, "--rescue"]).ok()),
            "gc" => {
                home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).says("saved as");
            }
            _ => drop(home.toft(&repo, &["ws", look, look]).ok()),
        }
        if matches!(look, "rm" | "gc") {
            home.toft(&repo, &["ws", "restore", look]).ok();
        }
        assert_eq!(fs::read_to_string(w.join("work.txt")).unwrap(), "work\n", "{look}");
        assert_eq!(git(&home, &w, &["status", "--porcelain"]), "M  src/d0/f1.txt\n?? work.txt\n", "{look}");
        home.toft(&repo, &["ws", "rm", look, "--rescue"]).ok();
    }
}

#[test]
fn after_a_restart_the_next_look_mounts_a_workspace_and_keeps_what_was_written_meanwhile() {
    let (home, repo) = Home::with(instant);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let w = create(&home, &repo, "w", &[]);
    fs::write(w.join("work"), "work\n").unwrap();
    fs::write(w.join(".env"), "S\n").unwrap();
    fs::write(w.join("src/d0/f1.txt"), "staged\n").unwrap();
    git(&home, &w, &["add", "src"]);
    let before = whole(&home, &w);
    for (n, look) in [&["ws", "list"] as &[&str], &["ws", "path", "w"], &["ws", "list", "w"]].iter().enumerate() {
        unmount(&home, &w);
        // The frozen checkout is no longer mounted either, and an editor that remembers the path writes there.
        let base = fs::read_dir(w.with_file_name(".bases")).unwrap().flatten().find(|entry| entry.path().is_dir());
        let _ = home.command(home.path(), "umount", &[base.unwrap().path().join("tree").to_str().unwrap()]).output();
        fs::create_dir(w.join(".vscode")).unwrap();
        fs::write(w.join(".vscode/settings.json"), "{}\n").unwrap();
        home.toft(&repo, look).ok();
        assert_eq!(whole(&home, &w).differences(&before), Vec::<String>::new(), "{look:?}");
        let kept = w.with_file_name(format!("w.unmounted-{}", n + 1)).join(".vscode/settings.json");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "{}\n", "{look:?}");
    }
    let said = home.toft(&repo, &["doctor"]).out;
    assert!(said.contains("w.unmounted-1 was written while the workspace was not mounted"), "{said}");
    unmount(&home, &w);
    git(&home, &repo, &["worktree", "prune"]);
    git(&home, &repo, &["gc", "-q", "--prune=now"]);
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    home.toft(&repo, &["ws", "restore", "w"]).ok();
    assert_eq!(whole(&home, &w).differences(&before), Vec::<String>::new());
}

#[test]
fn a_layer_is_never_mounted_twice() {
    let (home, repo) = Home::with(instant);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let w = create(&home, &repo, "w", &[]);
    fs::write(w.join("work"), "work\n").unwrap();
    // In a namespace of its own, as a container has one.
    unmount(&home, &w);
    let script = format!(
        "{APART}; '{}' ws path w && touch '{}/inside' && echo ready > '{}' && exec sleep 60",
        toft_bin().display(),
        w.display(),
        home.path().join("ready").display()
    );
    let args = ["-m", "--propagation", "private", "sh", "-c", &script];
    let inside = ChildGuard(home.command(&repo, "unshare", &args).stdout(Stdio::null()).spawn().unwrap());
    until(20, "it is mounted there", || home.path().join("ready").exists());
    let refused = |said: Said| {
        assert!(said.err.contains("not_whole") && said.err.contains("namespace"), "{said:?}");
        assert!(said.err.contains(&inside.0.id().to_string()), "it names the process: {said:?}");
    };
    refused(home.toft(&repo, &["ws", "path", "w"]));
    refused(home.toft(&repo, &["ws", "rm", "w", "--rescue"]));
    assert_eq!(mounts_at(&w), 0);
    drop(inside);
    home.toft(&repo, &["ws", "path", "w"]).ok();
    assert!(w.join("inside").exists() && w.join("work").exists());
    // Detached while a process is in it.
    let sleeper = ChildGuard(Command::new("sleep").arg("60").current_dir(&w).spawn().unwrap());
    home.run(home.path(), "umount", &["-l", w.to_str().unwrap()]);
    let said = home.toft(&repo, &["ws", "path", "w"]);
    assert!(said.err.contains("not_whole") && said.err.contains("detached"), "{said:?}");
    drop(sleeper);
    home.toft(&repo, &["ws", "path", "w"]).ok();
    assert_eq!((mounts_at(&w), w.join("inside").exists()), (1, true));
    // Served by a daemon that nobody here sees mounted, as one that a container started.
    unmount(&home, &w);
    let id = home.toft(&repo, &["ws", "list", "w", "--json"]).data()["id"].as_str().unwrap().to_owned();
    unmount(&home, &w);
    let (layer, at) = (w.with_file_name(".layers").join(&id), home.path().join("elsewhere"));
    fs::create_dir(&at).unwrap();
    let (up, work) = (layer.join("up"), layer.join("work"));
    let options = format!("lowerdir={},upperdir={},workdir={}", repo.display(), up.display(), work.display());
    let args = ["-f", "-o", &options, at.to_str().unwrap()];
    let Ok(served) = home.command(home.path(), "fuse-overlayfs", &args).stderr(Stdio::null()).spawn() else {
        println!("skipped: no fuse-overlayfs here");
        return;
    };
    let served = ChildGuard(served);
    let until = Instant::now() + Duration::from_secs(5);
    while mounts_at(&at) == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    if mounts_at(&at) == 1 {
        let said = home.toft(&repo, &["ws", "path", "w"]);
        assert!(said.err.contains(&format!("process {} (fuse-overlayfs)", served.0.id())), "{said:?}");
    }
    drop(served);
    let _ = home.command(home.path(), "umount", &["-l", at.to_str().unwrap()]).output();
    home.toft(&repo, &["ws", "path", "w"]).ok();
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]).ok();
}

#[test]
fn what_is_mounted_for_an_agent_outlives_it() {
    let mut home = Home::new();
    home.toft_on_path();
    let home = home;
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let repo = instant(&home);
    let w = create(&home, &repo, "w", &[]);
    fs::write(w.join("work"), "work\n").unwrap();
    unmount(&home, &w);
    // A sandboxed agent may not ask for other workspaces; another agent mounts it for everybody.
    home.toft(&repo, &["add", "A task"]).ok();
    let script = "toft ws path w; toft ws list; toft finish --no-change 'looked'";
    if Command::new("bwrap").arg("--version").output().is_ok() {
        home.toft(&repo, &["run", "--once", "--sandbox", "--", "sh", "-c", script]).ok();
        assert!(!w.join("work").exists());
        home.toft(&repo, &["add", "Another task"]).ok();
    }
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    assert_eq!(fs::read_to_string(w.join("work")).unwrap(), "work\n");
    assert_eq!(mounts_at(&w), 1);
}

#[test]
fn bases_cannot_be_written_and_are_built_again_if_they_were_changed_or_are_gone() {
    let (home, repo) = Home::with(instant);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let one = create(&home, &repo, "one", &[]);
    let two = create(&home, &repo, "two", &[]);
    fs::write(one.join("work"), "work\n").unwrap();
    let base = fs::read_dir(one.with_file_name(".bases")).unwrap().flatten().find(|entry| entry.path().is_dir());
    let base = base.unwrap().path();
    let file = base.join("tree/src/d0/f1.txt");
    // A program that goes through everything the user has.
    assert!(fs::write(&file, "evil\n").is_err(), "nobody writes to what many share");
    let swept = home.command(home.path(), "sed", &["-i", "s/file/evil/", file.to_str().unwrap()]).output().unwrap();
    assert!(!swept.status.success());
    assert_eq!(git(&home, &two, &["status", "--porcelain"]), "");
    // Somebody who insists.
    unmount(&home, &base.join("tree"));
    fs::write(&file, "evil\n").unwrap();
    let three = create(&home, &repo, "three", &[]);
    assert_eq!(git(&home, &three, &["status", "--porcelain"]), "");
    assert!(fs::read_to_string(three.join("src/d0/f1.txt")).unwrap().starts_with("file 1"));
    // What stands on it is well again when it is mounted next.
    unmount(&home, &two);
    home.toft(&repo, &["ws", "path", "two"]).ok();
    assert_eq!(git(&home, &two, &["status", "--porcelain"]), "");
    assert!(fs::read_to_string(two.join("src/d0/f1.txt")).unwrap().starts_with("file 1"));
    // Deleted by hand.
    unmount(&home, &base.join("tree"));
    fs::remove_dir_all(&base).unwrap();
    unmount(&home, &one);
    home.toft(&repo, &["ws", "path", "one"]).ok();
    assert_eq!(git(&home, &one, &["status", "--porcelain"]), "?? work\n");
    home.toft(&repo, &["ws", "rm", "one", "--rescue"]).ok();
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    let left: Vec<_> = fs::read_dir(one.with_file_name(".bases")).unwrap().flatten().collect();
    assert_eq!(left.iter().filter(|entry| entry.path().is_dir()).count(), 1, "{left:?}");
}

#[test]
fn a_repository_that_was_moved_finds_its_workspaces_again() {
    let (home, mut repo) = Home::with(instant);
    let _unmount = Unmount(&home);
    let modes: &[&str] = if may_mount() { &["never", "always"] } else { &["never"] };
    for (n, mode) in modes.iter().enumerate() {
        fs::write(repo.join(".git/toft/config.toml"), format!("[workspaces]\ninstant = \"{mode}\"\n")).unwrap();
        // The first command after the move is each of these.
        for (m, look) in ["path", "list", "rm", "gc", "rescue"].iter().enumerate() {
            let name = format!("{look}-{mode}");
            let (w, c) = (create(&home, &repo, &name, &[]), create(&home, &repo, &format!("{name}-c"), &["--clone"]));
            fs::write(w.join("work"), "work\n").unwrap();
            fs::write(c.join("work"), "work\n").unwrap();
            let moved = home.path().join(format!("moved-{n}-{m}"));
            fs::rename(&repo, &moved).unwrap();
            repo = moved;
            home.toft(&w, &["status"]).refuses(8, "toft ws list");
            for (dir, name) in [(&w, name.clone()), (&c, format!("{name}-c"))] {
                let args: Vec<&str> = match *look {
                    "list" => vec!["ws", "list"],
                    "rm" => vec!["ws", "rm", &name, "--rescue"],
                    "gc" => vec!["ws", "gc", "--older-than", "0s"],
                    look => vec!["ws", look, &name],
                };
                home.toft(&repo, &args).ok();
                if !dir.exists() {
                    home.toft(&repo, &["ws", "restore", &name]).ok();
                }
                assert_eq!(git(&home, dir, &["status", "--porcelain"]), "?? work\n", "{look} {mode}");
                assert_eq!(home.toft(dir, &["where", "--json"]).code, 0, "{look} {mode}");
            }
            let said = home.toft(&repo, &["ws", "list"]).ok();
            assert!(!said.contains("fatal") && !said.contains("not there"), "{said}");
            home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
            assert!(!w.exists() && !c.exists());
        }
    }
}

#[test]
fn a_task_goes_on_in_its_workspace_after_the_repository_was_moved() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["add", "Job"]).ok();
    let w = home.claim_workspace(&repo, &["--as", "w"]);
    fs::write(w.join("p.txt"), "precious\n").unwrap();
    git(&home, &w, &["add", "."]);
    git(&home, &w, &["commit", "-q", "-m", "work"]);
    fs::write(w.join("dirty.txt"), "dirty\n").unwrap();
    let moved = home.path().join("moved");
    fs::rename(&repo, &moved).unwrap();
    home.toft(&moved, &["finish", "release", "-m", "back", "--as", "w"]).ok();
    let given = home.toft(&moved, &["claim", "--ws", "--as", "v", "--json"]).data()["workspace"].clone();
    assert_eq!(given["path"].as_str(), w.to_str());
    assert_eq!(git(&home, &w, &["status", "--porcelain"]), "?? dirty.txt\n");
    home.toft(&w, &["save", "-m", "from inside", "--as", "v"]).ok();
    home.toft(&moved, &["finish", "release", "-m", "again", "--as", "v"]).ok();
    home.toft(&moved, &["run", "--once", "--", "sh", "-c", "date > f; git add f; git commit -qm f"]).ok();
    assert!(w.join("dirty.txt").exists() && w.join("p.txt").exists());
}
