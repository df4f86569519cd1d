//! Instant workspaces: many stand on one frozen checkout, and none sees what another does.

use std::fs::{self, File};
use std::io::Seek;
use std::os::unix::fs::FileExt;

use toft_stories::kept::create;
use toft_stories::prelude::*;
use toft_stories::workspaces::fill;

fn project(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    fill(&repo, 300);
    fs::write(repo.join(".gitignore"), "target/\n").unwrap();
    commit_all(home, &repo, "files");
    fs::create_dir(repo.join("target")).unwrap();
    fs::write(repo.join("target/artefact"), "built\n".repeat(1_000)).unwrap();
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"always\"\nwarm = [\"target\"]\n").unwrap();
    repo
}

/// Everything below, with inode times, to see that nothing was ever written.
fn frozen(dir: &Path) -> Vec<(PathBuf, i64, i64, u64, u32)> {
    let mut seen = Vec::new();
    let mut look = vec![dir.to_owned()];
    while let Some(at) = look.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                look.push(path.clone());
            }
            seen.push((path, meta.mtime_nsec(), meta.ctime_nsec(), meta.len(), meta.mode()));
        }
    }
    seen.sort();
    seen
}

#[test]
fn what_is_done_in_one_is_seen_neither_below_nor_in_any_other() {
    let (home, repo) = Home::with(project);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let (one, two) = (create(&home, &repo, "one", &[]), create(&home, &repo, "two", &[]));
    let base = fs::read_dir(one.parent().unwrap().join(".bases")).unwrap().flatten();
    let base = base.map(|entry| entry.path()).find(|path| path.join("tree").is_dir()).unwrap();
    assert_eq!(home.run(&one, "git", &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(one.join("target/artefact")).unwrap().len(), 6_000, "warm from the start");
    let (before, other) = (frozen(&base), whole(&home, &two));
    // Write, append, delete, rename a file and a directory, link, chmod, truncate, write through a map.
    fs::write(one.join("src/d0/f1.txt"), "written\n").unwrap();
    File::options().append(true).open(one.join("src/d0/f2.txt")).unwrap().write_all(b"more").unwrap();
    fs::remove_file(one.join("src/d0/f3.txt")).unwrap();
    fs::rename(one.join("src/d0/f4.txt"), one.join("moved.txt")).unwrap();
    fs::rename(one.join("src/d1"), one.join("src/renamed")).unwrap();
    fs::hard_link(one.join("src/d0/f5.txt"), one.join("linked.txt")).unwrap();
    fs::write(one.join("linked.txt"), "through the link\n").unwrap();
    chmod(&one.join("src/d0/f6.txt"), 0o755);
    File::options().write(true).open(one.join("src/d0/f7.txt")).unwrap().set_len(3).unwrap();
    let map = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[0:4]=b'MAPS'\nm.flush()\n";
    home.run(&one, "python3", &["-c", map, "src/d0/f8.txt"]);
    let mut file = File::options().read(true).write(true).open(one.join("src/d0/f9.txt")).unwrap();
    file.write_at(b"AT", 2).unwrap();
    file.rewind().unwrap();
    drop(file);
    fs::write(one.join("target/artefact"), "rebuilt\n").unwrap();
    fs::remove_dir_all(one.join("src/d2")).unwrap();
    home.run(&one, "git", &["mv", "src/d0/f10.txt", "by-git.txt"]);
    assert!(fs::read_to_string(one.join("src/d0/f8.txt")).unwrap().starts_with("MAPS"));
    assert_eq!(frozen(&base), before, "what is below is as it was");
    assert_eq!(whole(&home, &two).differences(&other), Vec::<String>::new(), "the other sees nothing");
    assert_eq!(fs::read_to_string(two.join("target/artefact")).unwrap().len(), 6_000);
    let three = create(&home, &repo, "three", &[]);
    assert_eq!(home.run(&three, "git", &["status", "--porcelain"]), "");
    // Everything that holds for a worktree holds for this: put away, taken down, brought back.
    fs::remove_dir_all(one.join("target")).unwrap();
    let mine = whole(&home, &one);
    home.toft(&repo, &["ws", "rm", "one"]).fails(5);
    home.toft(&repo, &["ws", "rm", "one", "--rescue"]).ok();
    assert!(!one.exists());
    home.toft(&repo, &["ws", "restore", "one"]).ok();
    assert_eq!(whole(&home, &one).differences(&mine), Vec::<String>::new());
    for name in ["two", "three"] {
        home.toft(&repo, &["ws", "rm", name]).ok();
    }
    assert!(base.is_dir(), "the newest stays warm");
}

#[test]
fn a_base_serves_what_is_near_and_goes_when_nobody_stands_on_it() {
    let (home, repo) = Home::with(project);
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    let one = create(&home, &repo, "one", &[]);
    let bases = || {
        let entries = fs::read_dir(one.parent().unwrap().join(".bases")).unwrap().flatten();
        entries.filter(|entry| entry.path().join("tree").is_dir()).count()
    };
    fs::write(repo.join("src/d0/f0.txt"), "next\n").unwrap();
    home.run(&repo, "git", &["commit", "-q", "-a", "-m", "a little"]);
    let two = create(&home, &repo, "two", &[]);
    assert_eq!(bases(), 1, "a small difference is only a layer");
    assert_eq!(fs::read_to_string(two.join("src/d0/f0.txt")).unwrap(), "next\n");
    assert_eq!(home.run(&two, "git", &["status", "--porcelain"]), "");
    for n in 0..200 {
        fs::write(repo.join(format!("src/d{}/f{n}.txt", n / 100)), "all other\n").unwrap();
    }
    home.run(&repo, "git", &["commit", "-q", "-a", "-m", "a lot"]);
    let three = create(&home, &repo, "three", &[]);
    assert_eq!((bases(), home.run(&three, "git", &["status", "--porcelain"])), (2, String::new()));
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    assert!(!one.exists() && !two.exists() && !three.exists());
    assert_eq!(bases(), 1);
}

#[test]
fn where_layers_do_not_work_copies_share_their_blocks() {
    let home = Home::new();
    let Some(_unmount) = Unmount::where_possible(&home) else { return };
    // A file system that can share blocks, and a path that no overlay takes.
    let (image, disk) = (home.path().join("image"), home.path().join("disk"));
    File::create(&image).unwrap().set_len(600 << 20).unwrap();
    home.run(home.path(), "mkfs.xfs", &["-q", "-m", "reflink=1", image.to_str().unwrap()]);
    fs::create_dir(&disk).unwrap();
    let args = ["-o", "loop", image.to_str().unwrap(), disk.to_str().unwrap()];
    if !home.command(home.path(), "mount", &args).output().unwrap().status.success() {
        println!("skipped: this user cannot mount a loop device");
        return;
    }
    let repo = project(&home);
    fs::write(repo.join("target/large"), vec![9; 40 << 20]).unwrap();
    let root = disk.join("with,comma");
    let config = format!("[workspaces]\ninstant = \"always\"\nwarm = [\"target\"]\nroot = \"{}\"\n", root.display());
    fs::write(repo.join(".git/toft/config.toml"), config).unwrap();
    let used = || {
        let said = home.run(home.path(), "df", &["--output=used", "-m", disk.to_str().unwrap()]);
        said.lines().last().unwrap().trim().parse::<u64>().unwrap()
    };
    let first = create(&home, &repo, "first", &[]);
    let before = used();
    let plots: Vec<PathBuf> = (0..5).map(|n| create(&home, &repo, &format!("p{n}"), &[])).collect();
    assert!(used() - before < 40, "five with 40 MB each take {} MB", used() - before);
    for plot in &plots {
        assert_eq!(home.run(plot, "git", &["status", "--porcelain"]), "");
        assert_eq!(fs::metadata(plot.join("target/large")).unwrap().len(), 40 << 20);
    }
    fs::write(plots[0].join("src/d0/f1.txt"), "mine\n").unwrap();
    assert_ne!(fs::read_to_string(plots[1].join("src/d0/f1.txt")).unwrap(), "mine\n");
    assert!(home.toft(&repo, &["doctor"]).ok().contains("created as reflink copies"));
    home.toft(&repo, &["ws", "rm", "p0", "--rescue"]).ok();
    home.toft(&repo, &["ws", "restore", "p0"]).ok();
    assert_eq!(fs::read_to_string(plots[0].join("src/d0/f1.txt")).unwrap(), "mine\n");
    assert!(first.is_dir());
}
