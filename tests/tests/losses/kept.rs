//! Nothing that exists nowhere else goes: what version control does not name is put away, or named before it is deleted.

use toft_stories::kept::{
    begin_repository, create, every_byte, fill_submodule, left, lost, project, with_submodule, write,
};
use toft_stories::prelude::*;

/// 02: git status never names a repository that was begun in a directory with tracked files.
#[test]
fn a_repository_begun_in_a_tracked_directory_comes_back() {
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "w", &[]);
    let inner = begin_repository(&home, &dir.join("src"));
    let ignored = begin_repository(&home, &dir.join("vendor/deep/one"));
    assert_eq!(home.run(&dir, "git", &["status", "--porcelain"]), "", "git says that there is nothing");
    let before = every_byte(&dir);
    home.toft(&repo, &["ws", "rm", "w"]).refuses(5, "src/ is a repository of its own");
    assert!(home.toft(&repo, &["ws", "list"]).ok().contains("src/ is a repository of its own"));
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]).ok();
    assert!(!dir.exists());
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    home.toft(&repo, &["ws", "restore", "w"]).ok();
    assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new());
    home.run(&dir.join("src"), "git", &["cat-file", "-e", &inner]);
    home.run(&dir.join("vendor/deep/one"), "git", &["fsck", "--full"]);
    home.run(&dir.join("vendor/deep/one"), "git", &["cat-file", "-e", &ignored]);
}

/// 03: ignored files, operations, stashes and commits of submodules.
#[test]
fn what_is_only_in_a_submodule_comes_back() {
    let (home, repo) = Home::with(with_submodule);
    fill_submodule(&home, &create(&home, &repo, "clean", &[]));
    home.toft(&repo, &["ws", "rm", "clean"]).ok();
    for kind in ["env", "dirty", "unpushed", "reflog", "stash", "bisect", "inside", "emptied"] {
        let dir = create(&home, &repo, kind, &[]);
        fill_submodule(&home, &dir);
        let lib = dir.join("lib");
        let git = |args: &[&str]| home.run(&lib, "git", args);
        let mut commit = String::new();
        match kind {
            "env" => write(&lib.join(".env"), "SECRET=1\n"),
            "dirty" => write(&lib.join("lib.txt"), "changed\n"),
            "bisect" => drop(git(&["bisect", "start"])),
            "inside" => commit = begin_repository(&home, &lib.join("inner")),
            _ => {
                write(&lib.join("lib.txt"), "changed\n");
                match kind {
                    "stash" => drop(git(&["stash", "-q"])),
                    _ => drop(git(&["commit", "-q", "-a", "-m", "only here"])),
                }
                commit = git(&["rev-parse", if kind == "stash" { "stash" } else { "HEAD" }]).trim().to_owned();
            }
        }
        match kind {
            "reflog" => drop(git(&["reset", "-q", "--hard", "HEAD~1"])),
            "emptied" => drop(home.run(&dir, "git", &["submodule", "--quiet", "deinit", "-f", "lib"])),
            _ => {}
        }
        let before = every_byte(&dir);
        let said = home.toft(&repo, &["ws", "rm", kind]).fails(5);
        assert!(said.contains("submodule lib") || kind == "inside", "{kind}: {said}");
        home.toft(&repo, &["ws", "rm", kind, "--rescue"]).ok();
        assert!(!dir.exists(), "{kind}");
        let other = format!("{kind}-again");
        home.toft(&repo, &["ws", "restore", kind]).ok();
        assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new(), "{kind}");
        match kind {
            "emptied" => {
                let module = home.run(&dir, "git", &["rev-parse", "--git-path", "modules/lib"]);
                home.run(&dir, "git", &["--git-dir", module.trim(), "cat-file", "-e", &commit]);
            }
            "inside" => drop(home.run(&lib.join("inner"), "git", &["cat-file", "-e", &commit])),
            _ => {
                home.run(&lib, "git", &["status"]);
                if !commit.is_empty() {
                    home.run(&lib, "git", &["cat-file", "-e", &commit]);
                }
            }
        }
        // Elsewhere, it finds its own repository and not that of the first.
        if kind == "env" {
            home.toft(&repo, &["ws", "restore", kind, "--at", "1", "--name", &other]).ok();
            let beside = dir.with_file_name(&other).join("lib");
            let own = home.run(&beside, "git", &["rev-parse", "--absolute-git-dir"]);
            assert!(own.contains(&other), "{kind}: {own}");
            assert_eq!(home.run(&beside, "git", &["rev-parse", "--show-toplevel"]).trim(), beside.to_str().unwrap());
        }
    }
}

#[test]
fn work_on_another_branch_of_a_clone_is_asked_about_before_it_goes() {
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "c", &["--clone"]);
    home.run(&dir, "git", &["switch", "-q", "-c", "other"]);
    home.run(&dir, "git", &["commit", "-q", "--allow-empty", "-m", "only here"]);
    home.run(&dir, "git", &["switch", "-q", "c"]);
    let said = home.toft(&repo, &["ws", "rm", "c"]).fails(5);
    assert!(said.contains("1 on other branches") && !said.contains("log only"), "{said}");
    home.toft(&repo, &["ws", "rm", "c", "--rescue"]).ok();
    home.toft(&repo, &["ws", "restore", "c"]).ok();
    assert_eq!(home.run(&dir, "git", &["log", "-1", "--format=%s", "other"]), "only here\n");
}

/// 04: whatever a clone's refs and logs name.
#[test]
fn every_ref_and_every_log_of_a_clone_comes_back() {
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "c", &["--clone"]);
    let git = |args: &[&str]| home.run(&dir, "git", args).trim().to_owned();
    let tree = git(&["rev-parse", "HEAD^{tree}"]);
    let commit = |text: &str| git(&["commit-tree", "-m", text, "-p", "HEAD", &tree]);
    let (wip, checkpoint, logged) = (commit("wip"), commit("checkpoint"), commit("only a log knows it"));
    git(&["update-ref", "refs/wip/main", &wip]);
    git(&["update-ref", "refs/checkpoints/1", &checkpoint]);
    write(&dir.join("blob"), "a ref may name anything\n");
    let blob = git(&["hash-object", "-w", "blob"]);
    fs::remove_file(dir.join("blob")).unwrap();
    git(&["update-ref", "refs/odd/blob", &blob]);
    git(&["tag", "-a", "-m", "tagged", "v1", &checkpoint]);
    git(&["notes", "add", "-m", "a note", "HEAD"]);
    git(&["branch", "other"]);
    git(&["update-ref", "-m", "forward", "refs/heads/other", &logged]);
    git(&["branch", "-f", "other", "HEAD"]);
    git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/other"]);
    write(&dir.join("src/f1.txt"), "stashed\n");
    git(&["stash", "-q"]);
    let refs = git(&["for-each-ref"]);
    let log = git(&["reflog", "show", "other"]);
    let stash = git(&["rev-parse", "stash"]);
    let hook = dir.join(".git/hooks/pre-commit");
    write(&hook, "#!/bin/sh\n");
    chmod(&hook, 0o755);
    home.toft(&repo, &["ws", "rm", "c", "--rescue"]).ok();
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    home.toft(&repo, &["ws", "restore", "c"]).ok();
    assert_eq!(git(&["for-each-ref"]), refs);
    assert_eq!(git(&["reflog", "show", "other"]), log);
    assert_eq!(fs::metadata(&hook).unwrap().permissions().mode() & 0o777, 0o755);
    git(&["gc", "-q", "--prune=now"]);
    for oid in [&wip, &checkpoint, &logged, &blob, &stash] {
        git(&["cat-file", "-e", oid]);
    }
}

/// 05, 08: refs of a worktree alone, and a bisect, which goes on where it was.
#[test]
fn refs_of_a_worktree_and_its_bisect_come_back() {
    let (home, repo) = Home::with(project);
    for n in 0..8 {
        home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", &format!("m{n}")]);
    }
    let dir = create(&home, &repo, "w", &[]);
    let git = |args: &[&str]| home.run(&dir, "git", args).trim().to_owned();
    let mark = git(&["commit-tree", "-m", "mark", "HEAD^{tree}"]);
    git(&["update-ref", "refs/worktree/mark", &mark]);
    git(&["bisect", "start", "HEAD", "HEAD~7"]);
    git(&["bisect", "good"]);
    let refs = git(&["for-each-ref", "refs/bisect", "refs/worktree"]);
    assert_eq!(refs.lines().count(), 4);
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]).ok();
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    home.toft(&repo, &["ws", "restore", "w"]).ok();
    assert_eq!(git(&["for-each-ref", "refs/bisect", "refs/worktree"]), refs);
    assert!(git(&["bisect", "good"]).contains("Bisecting"), "it goes on");
}

/// 06: the index, detached commits and operations outlive the directory.
#[test]
fn what_git_keeps_of_a_directory_deleted_by_hand_is_put_away() {
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "w", &[]);
    let git = |args: &[&str]| home.run(&dir, "git", args).trim().to_owned();
    git(&["checkout", "-q", "--detach"]);
    git(&["commit", "-q", "--allow-empty", "-m", "detached"]);
    let head = git(&["rev-parse", "HEAD"]);
    write(&dir.join("staged.txt"), "staged\n");
    git(&["add", "staged.txt"]);
    let index = git(&["ls-files", "--stage"]);
    fs::remove_dir_all(&dir).unwrap();
    home.toft(&repo, &["ws", "gc"]).says("kept    w");
    home.toft(&repo, &["ws", "rm", "w"]).refuses_all(5, &["moved or deleted by hand", "git has its index"]);
    home.toft(&repo, &["ws", "rm", "w", "--rescue"]).says("no files: its directory was not there");
    assert!(!repo.join(".git/worktrees/w").exists());
    home.run(&repo, "git", &["reflog", "expire", "--expire=now", "--all"]);
    home.run(&repo, "git", &["gc", "-q", "--prune=now"]);
    home.toft(&repo, &["ws", "restore", "w"]).ok();
    assert_eq!(git(&["rev-parse", "HEAD"]), head);
    assert_eq!(git(&["ls-files", "--stage"]), index);
    assert_eq!(fs::read_to_string(dir.join("staged.txt")).unwrap(), "staged\n");
}

/// 06: a directory that was moved by hand may be worked in; tidying up leaves what git keeps of it alone.
#[test]
fn a_directory_moved_by_hand_still_works_after_tidying_up() {
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "w", &[]);
    write(&dir.join("staged.txt"), "staged\n");
    home.run(&dir, "git", &["add", "staged.txt"]);
    let moved = home.path().join("moved");
    fs::rename(&dir, &moved).unwrap();
    home.toft(&repo, &["ws", "gc"]).ok();
    home.toft(&repo, &["ws", "rm", "w"]).fails(5);
    assert_eq!(home.run(&moved, "git", &["status", "--porcelain"]), "A  staged.txt\n");
    // Moved with git's knowledge, it is somebody's own now.
    let other = create(&home, &repo, "v", &[]);
    let there = home.path().join("there");
    home.run(&repo, "git", &["worktree", "move", other.to_str().unwrap(), there.to_str().unwrap()]);
    home.toft(&repo, &["ws", "rm", "v"]).says("it was moved to");
    home.run(&there, "git", &["status"]);
}

/// 30: small ignored work is kept; large is named before it goes, and kept on request.
#[test]
fn ignored_work_is_kept_or_named_before_it_goes() {
    let (home, repo) = Home::with(project);
    for name in ["small", "kept"] {
        let dir = create(&home, &repo, name, &[]);
        write(&dir.join("notes/findings.md"), "three hours of findings\n");
        write(&dir.join("data/run.bin"), &"x".repeat(3 << 20));
        write(&dir.join("dev.sqlite"), &"y".repeat(2 << 20));
        write(&dir.join("target/debug/app"), "built\n");
        fs::create_dir(dir.join("empty")).unwrap();
        chmod(&dir.join("empty"), 0o700);
    }
    let dir = home.toft(&repo, &["ws", "path", "small"]).ok();
    let dir = PathBuf::from(dir.trim());
    let before = every_byte(&dir);
    home.toft(&repo, &["ws", "gc", "-n", "--older-than", "0s"])
        .says("would not save data/ (3.1 MB), dev.sqlite (2.1 MB), target/ (6 B)");
    assert!(home.toft(&repo, &["ws", "list", "small"]).ok().contains("dev.sqlite (2.1 MB)"));
    let gone = home.toft(&repo, &["ws", "rm", "small", "--json"]).data();
    assert!(gone[0]["holds"].as_str().unwrap().contains("1 files"), "{gone}");
    let named = left(&home, &repo, "small");
    assert_eq!(named, ["data", "dev.sqlite", "target"]);
    home.toft(&repo, &["ws", "restore", "small"]).ok();
    assert_eq!(lost(&before, &every_byte(&dir), &named), Vec::<String>::new());
    assert!(dir.join("notes/findings.md").is_file());
    home.toft(&repo, &["ws", "rm", "kept", "--rescue", "--ignored"]).ok();
    assert_eq!(left(&home, &repo, "kept"), Vec::<String>::new());
    home.toft(&repo, &["ws", "restore", "kept"]).ok();
    assert_eq!(lost(&before, &every_byte(&dir.with_file_name("kept")), &[]), Vec::<String>::new());
}

/// 31: for want of room, only what tools build again is deleted from unfinished work, and it is named.
#[test]
fn only_what_tools_build_again_goes_for_want_of_room() {
    let (home, repo) = Home::with(project);
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\nmax_bytes = \"6M\"\n").unwrap();
    let dir = create(&home, &repo, "w", &[]);
    write(&dir.join("work.txt"), "work\n");
    write(&dir.join("data/results.bin"), &"x".repeat(3 << 20));
    write(&dir.join("target/large"), &"x".repeat(5 << 20));
    let script = "UPDATE workspaces SET body = json_set(body, '$.used', '2020-01-01T00:00:00.000Z')";
    home.run(&repo, "sqlite3", &[".git/toft/toft.db", script]);
    home.toft(&repo, &["ws", "gc"]).says("deleted, can be rebuilt: target/ (5.2 MB)");
    assert!(!dir.join("target").exists() && dir.join("data/results.bin").is_file() && dir.join("work.txt").is_file());
}

/// An ext4 of its own on a loop device.
struct Disk(PathBuf);

impl Disk {
    fn new(home: &Home) -> Self {
        let (image, at) = (home.path().join("disk.img"), home.path().join("disk"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(96 << 20).unwrap();
        home.run(home.path(), "mkfs.ext4", &["-q", image.to_str().unwrap()]);
        home.run(home.path(), "mount", &["-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()]);
        Self(at)
    }

    /// Leaves room for a few small files.
    fn fill(&self) {
        let path = self.0.join("fill");
        let mut file = fs::File::create(&path).unwrap();
        let block = vec![1; 1 << 20];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
        let most = file.metadata().unwrap().len();
        file.set_len(most.saturating_sub(2 << 20)).unwrap();
        file.sync_all().unwrap();
    }

    fn clear(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

/// 10, 11: neither a removal nor a restore leaves anything half done on a full disk; both can be repeated.
#[test]
fn a_full_disk_leaves_nothing_half_done() {
    let home = Home::new();
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let disk = Disk::new(&home);
    let repo = project(&home);
    let config = home.path().join("home/.config/toft/config.toml");
    write(&config, &format!("[workspaces]\nroot = \"{}\"\n", disk.0.join("ws").display()));
    // Both on the same disk: the repository's objects too.
    let inner = disk.0.join("api");
    home.run(home.path(), "cp", &["-a", repo.to_str().unwrap(), inner.to_str().unwrap()]);
    fs::remove_dir_all(inner.join(".git/toft")).unwrap();
    home.toft(&inner, &["init"]).ok();
    for kind in [&[][..], &["--clone"]] {
        let name = if kind.is_empty() { "w" } else { "c" };
        let dir = create(&home, &inner, name, kind);
        // Nothing that could be made smaller.
        let mut noise = vec![0; 8 << 20];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut noise).unwrap();
        fs::write(dir.join("big"), noise).unwrap();
        write(&dir.join(".env"), "SECRET=1\n");
        write(&dir.join("zz"), "last\n");
        begin_repository(&home, &dir.join("src"));
        let before = every_byte(&dir);
        disk.fill();
        assert_ne!(home.toft(&inner, &["ws", "rm", name, "--rescue"]).code, 0);
        assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new(), "untouched");
        let packs = fs::read_dir(inner.join(".git/objects/pack")).unwrap();
        let halves = packs.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("tmp_"));
        assert_eq!(halves.count(), 0, "half a pack is not left");
        disk.clear();
        home.toft(&inner, &["ws", "rm", name, "--rescue"]).ok();
        let rescue = home.toft(&inner, &["ws", "list", name, "--json"]).data()["rescue"].clone();
        disk.fill();
        assert_ne!(home.toft(&inner, &["ws", "restore", name]).code, 0);
        assert!(!dir.exists(), "a restore that failed is taken back");
        let shown = home.toft(&inner, &["ws", "list", name, "--json"]).data();
        assert_eq!((&shown["state"], &shown["rescue"]), (&Value::from("removed"), &rescue));
        disk.clear();
        home.toft(&inner, &["ws", "restore", name]).ok();
        assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new(), "repeated");
        home.toft(&inner, &["ws", "rm", name, "--rescue"]).ok();
    }
}

/// A removal that stopped after the files went is gone on with; what git still had of them replaces no rescue.
#[test]
fn a_removal_that_stopped_at_its_very_end_keeps_its_rescue() {
    if !may_mount() {
        return;
    }
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "w", &[]);
    write(&dir.join("work.txt"), "work\n");
    home.run(&dir, "git", &["add", "work.txt"]);
    write(&dir.join("data/large"), &"x".repeat(2 << 20));
    let before = every_byte(&dir);
    // Something that nobody can delete, where git keeps what is the worktree's own.
    let stuck = repo.join(".git/worktrees/w/stuck");
    fs::create_dir(&stuck).unwrap();
    home.run(home.path(), "mount", &["-t", "tmpfs", "none", stuck.to_str().unwrap()]);
    let said = home.toft(&repo, &["ws", "rm", "w", "--rescue", "--ignored"]);
    home.run(home.path(), "umount", &[stuck.to_str().unwrap()]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(!dir.exists());
    let rescue = home.toft(&repo, &["ws", "list", "w", "--json"]).data()["rescue"].clone();
    home.toft(&repo, &["ws", "gc"]).ok();
    let shown = home.toft(&repo, &["ws", "list", "w", "--json"]).data();
    assert_eq!((&shown["state"], &shown["rescue"]), (&Value::from("removed"), &rescue));
    home.toft(&repo, &["ws", "restore", "w"]).ok();
    assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new());
}

/// 12: a current directory, an open or mapped file, a mount in another name space.
#[test]
fn a_process_with_anything_open_below_holds_the_workspace() {
    let (home, repo) = Home::with(project);
    let dir = create(&home, &repo, "w", &[]);
    let at = dir.display();
    let python = |text: String| {
        format!("exec python3 -c \"import time,mmap,os\n{text}\nprint('ready', flush=True)\ntime.sleep(60)\"")
    };
    let mut ways = vec![
        format!("cd {at}; echo ready; exec sleep 60"),
        python(format!("f = open('{at}/src/f1.txt', 'a')")),
        python(format!(
            "f = open('{at}/src/f1.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); os.closerange(3, 9)"
        )),
        format!("cp $(readlink -f $(command -v sleep)) {at}/target-sleep; echo ready; exec {at}/target-sleep 60"),
    ];
    if may_mount() {
        ways.push(format!("exec unshare -m sh -c 'mount --bind {at} /mnt && cd /mnt && echo ready && exec sleep 60'"));
        ways.push(format!("exec unshare -m sh -c 'mount --bind {at}/src /mnt && cd / && echo ready && exec sleep 60'"));
        ways.push(format!(
            "exec unshare -m sh -c 'mount --bind {at} /mnt && cd /mnt/src && exec 5>>f1.txt && cd / && umount -l /mnt && echo ready && exec sleep 60'"
        ));
    }
    for way in &ways {
        let mut child =
            home.command(home.path(), "sh", &["-c", way]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let beside = ChildGuard(child);
        assert_eq!(line, "ready\n", "{way}");
        // What a program is started from is mapped once it runs.
        let runs = |words: String| !words.is_empty() && !words.starts_with("sh\0");
        let command = format!("/proc/{}/cmdline", beside.id());
        until(20, "it runs", || runs(fs::read_to_string(&command).unwrap()));
        home.toft(&repo, &["ws", "rm", "w", "--rescue"]).refuses(5, "error[in_use]");
        assert!(dir.join("src/f1.txt").is_file());
        drop(beside);
        let _ = fs::remove_file(dir.join("target-sleep"));
    }
    home.toft(&repo, &["ws", "rm", "w"]).ok();
}

/// A command as another, ordinary user, who owns this home.
fn as_user(home: &Home, dir: &Path, args: &[&str]) -> (i32, String) {
    let mut all = vec!["--reuid=65534", "--regid=65534", "--clear-groups"];
    all.extend(args);
    let output = home.command(dir, "setpriv", &all).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    if !root {
        println!("skipped: this user is not root");
    }
    root
}

/// 50: directories that only another user can delete from stop nothing half-way.
#[test]
fn files_of_another_user_leave_a_workspace_whole() {
    if !is_root() {
        return;
    }
    let (home, repo) = Home::with(project);
    chmod(home.path(), 0o755);
    home.run(home.path(), "chown", &["-R", "65534:65534", "home", "api"]);
    let toft = toft_bin();
    let run = |args: &[&str]| as_user(&home, &repo, &[&[toft.to_str().unwrap()], args].concat());
    let (code, said) = run(&["ws", "create", "--name", "w", "-q"]);
    assert_eq!(code, 0, "{said}");
    let dir = PathBuf::from(said.trim());
    write(&dir.join("build/x/made-by-root"), "root\n");
    let before = every_byte(&dir);
    for _ in 0..2 {
        let (code, said) = run(&["ws", "rm", "w", "--rescue"]);
        assert!(code == 5 && said.contains("belongs to another user"), "{said}");
        assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new());
    }
    assert!(run(&["ws", "list", "w"]).1.contains("w  ready"));
    home.run(home.path(), "chown", &["-R", "65534:65534", dir.to_str().unwrap()]);
    let (code, said) = run(&["ws", "rm", "w", "--rescue"]);
    assert!(code == 0 && !dir.exists(), "{said}");
    assert_eq!(run(&["ws", "restore", "w"]).0, 0);
    assert!(dir.join("build/x/made-by-root").is_file());
    // What nobody can read is not called a race.
    chmod(&dir.join("build/x/made-by-root"), 0o000);
    let (code, said) = run(&["ws", "rm", "w", "--rescue"]);
    assert!(code == 5 && said.contains("cannot be read"), "{said}");
}

/// 28: what root did in a user's repository, the user goes on with.
#[test]
fn locks_that_another_user_left_do_not_stick() {
    if !is_root() {
        return;
    }
    let (home, repo) = Home::with(project);
    chmod(home.path(), 0o755);
    home.run(home.path(), "chown", &["-R", "65534:65534", "home", "api"]);
    let toft = toft_bin();
    let run = |args: &[&str]| as_user(&home, &repo, &[&[toft.to_str().unwrap()], args].concat());
    home.toft(&repo, &["ws", "gc"]).ok();
    let (code, said) = run(&["ws", "gc"]);
    assert_eq!(code, 0, "{said}");
    // Those that root left are replaced, unless root has them locked now.
    let locks = repo.join(".git/toft/locks");
    for entry in fs::read_dir(&locks).unwrap() {
        home.run(home.path(), "chown", &["0:0", entry.unwrap().path().to_str().unwrap()]);
    }
    let (code, said) = run(&["ws", "gc"]);
    assert_eq!(code, 0, "{said}");
    assert!(fs::read_dir(&locks).unwrap().all(|file| file.unwrap().metadata().unwrap().uid() == 65534));
}

/// 36: what hg and jj do not keep holds the workspace.
#[test]
fn what_hg_and_jj_would_not_bring_back_holds_the_workspace() {
    let home = Home::new();
    for vcs in ["hg", "jj"] {
        let repo = home.path().join(vcs);
        fs::create_dir(&repo).unwrap();
        let init: &[&str] = if vcs == "hg" { &["init"] } else { &["git", "init", "--quiet"] };
        home.run(&repo, vcs, init);
        write(&repo.join("a"), "a\n");
        let ignore = if vcs == "hg" {
            (".hgignore", "syntax: glob\n.env\ntarget\n*.log\n")
        } else {
            (".gitignore", ".env\ntarget\n*.log\n")
        };
        write(&repo.join(ignore.0), ignore.1);
        write(&repo.join("copied.log"), "as in the source\n");
        match vcs {
            "hg" => drop(home.run(&repo, vcs, &["commit", "-q", "-A", "-m", "first"])),
            _ => drop(home.run(&repo, vcs, &["commit", "--quiet", "-m", "first"])),
        }
        home.toft(&repo, &["init"]).ok();
        let kinds = if vcs == "hg" { ["ignored", "nested"] } else { ["git", "artefacts"] };
        for kind in kinds {
            let dir = create(&home, &repo, kind, &[]);
            write(&dir.join("copied.log"), "as in the source\n");
            match kind {
                "ignored" => write(&dir.join(".env"), "SECRET\n"),
                "nested" => {
                    fs::create_dir(dir.join("target")).unwrap();
                    home.run(&dir.join("target"), "hg", &["init"]);
                }
                "git" => drop(begin_repository(&home, &dir.join("target/inner"))),
                _ => write(&dir.join("target/app"), "built\n"),
            }
            let before = every_byte(&dir);
            let said = home.toft(&repo, &["ws", "rm", kind, "--rescue"]);
            if kind == "artefacts" {
                said.ok();
                assert!(!dir.exists());
                assert_eq!(left(&home, &repo, kind), ["target"]);
                continue;
            }
            let said = said.fails(5);
            let why = if kind == "ignored" { ".env is ignored and only here" } else { "is a repository of its own" };
            assert!(said.contains(why), "{vcs} {kind}: {said}");
            assert_eq!(lost(&before, &every_byte(&dir), &[]), Vec::<String>::new(), "{vcs} {kind}");
        }
    }
}
