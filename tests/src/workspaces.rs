//! Workspaces, as stories see them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::Home;

/// A deterministic choice: the same story for the same seed.
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        // xorshift64*: small, and good enough to mix states.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
    }

    /// One time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Everything a user would miss: files with permissions, what is staged, where HEAD is, what is in progress.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
    staged: String,
    head: String,
    branch: String,
    status: String,
    stash: String,
}

impl Whole {
    /// Whether nothing differs from what was committed.
    pub fn is_clean(&self) -> bool {
        self.status.is_empty()
    }

    /// What differs, in words.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for name in self.files.keys().chain(other.files.keys()) {
            let (here, there) = (self.files.get(name), other.files.get(name));
            if here != there {
                let told = |file: Option<&(u32, Vec<u8>)>| {
                    file.map(|(mode, bytes)| format!("{mode:o} {:?}", String::from_utf8_lossy(bytes)))
                };
                found.push(format!("{}: {:?} and {:?}", name.display(), told(here), told(there)));
            }
        }
        for (what, here, there) in [
            ("staged", &self.staged, &other.staged),
            ("HEAD", &self.head, &other.head),
            ("branch", &self.branch, &other.branch),
            ("status", &self.status, &other.status),
            ("stash", &self.stash, &other.stash),
        ] {
            if here != there {
                found.push(format!("{what}: {here:?} and {there:?}"));
            }
        }
        found
    }

    /// Stashes of a worktree are the repository's: who cleared them there does not miss them here.
    pub fn forget_stash_of_repository(&mut self, before: &Self, dir: &Path) {
        if dir.join(".git").is_file() {
            self.stash.clone_from(&before.stash);
        }
    }
}

/// Looks at a git checkout without changing it. Ignored directories are artefacts and are left out.
pub fn whole(home: &Home, dir: &Path) -> Whole {
    let git = |args: &[&str]| {
        let mut all = vec!["--no-optional-locks"];
        all.extend(args);
        let output = home.command(dir, "git", &all).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut files = BTreeMap::new();
    let mut look = vec![dir.to_owned()];
    while let Some(at) = look.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().to_owned();
            if name.starts_with(".git") && !name.starts_with(".gitignore") || name.starts_with("target") {
                continue;
            }
            if meta.is_dir() && path.join(".git").exists() {
                // A submodule is a repository of its own; what it is on is in the index.
            } else if meta.is_dir() {
                look.push(path);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                files.insert(name, (0o120_000, target));
            } else {
                files.insert(name, (meta.mode(), fs::read(&path).unwrap()));
            }
        }
    }
    Whole {
        files,
        staged: git(&["ls-files", "--stage", "-z"]),
        head: git(&["rev-parse", "HEAD"]),
        branch: git(&["symbolic-ref", "--quiet", "HEAD"]),
        status: git(&["status", "--porcelain=v2", "-z", "--untracked-files=all"]),
        stash: git(&["stash", "list"]),
    }
}

/// Everything of a user's repository that no command may change: checkout, index, config, hooks, HEAD, branches, stash.
pub fn users_own(home: &Home, repo: &Path) -> (Whole, BTreeMap<String, Vec<u8>>, String) {
    let mut own = BTreeMap::new();
    for name in ["HEAD", "index", "config", "packed-refs", "logs/HEAD", "logs/refs/stash", "ORIG_HEAD"] {
        if let Ok(bytes) = fs::read(repo.join(".git").join(name)) {
            own.insert(name.to_owned(), bytes);
        }
    }
    let refs = home.run(repo, "git", &["for-each-ref", "refs/heads/main", "refs/heads/mine", "refs/stash"]);
    (whole(home, repo), own, refs)
}

/// Makes files of a repository: `count` of them in directories of a hundred.
pub fn fill(repo: &Path, count: usize) {
    for n in 0..count {
        let dir = repo.join(format!("src/d{}", n / 100));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{n}.txt")), format!("file {n}\n").repeat(8)).unwrap();
    }
}

/// Sets permissions.
pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether this user can mount a layer and a disk; what needs them is skipped where not, and says so.
pub fn may_mount() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let below = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path.display().to_string()
    };
    let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(below);
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mounted = Command::new("mount").args(["-t", "overlay", "trial", "-o", &options, &at]).output();
    let may = mounted.is_ok_and(|output| output.status.success());
    if may {
        assert!(Command::new("umount").arg(&at).status().unwrap().success());
    } else {
        println!("skipped: this user cannot mount");
    }
    may
}

/// When dropped, unmounts what a story left mounted in its home.
pub struct Unmount<'a>(pub &'a Home);

impl<'a> Unmount<'a> {
    /// Nothing if this user cannot mount.
    pub fn where_possible(home: &'a Home) -> Option<Self> {
        may_mount().then_some(Self(home))
    }
}

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let here = self.0.path().display().to_string();
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for at in places.filter(|at| at.starts_with(&here)) {
            let _ = Command::new("umount").arg(at).status();
        }
    }
}

/// Commits everything in a checkout, with git.
pub fn commit_all(home: &Home, dir: &Path, message: &str) {
    home.run(dir, "git", &["add", "-A"]);
    home.run(dir, "git", &["commit", "-qm", message]);
}

/// A repository with `count` workspaces that are worked in: every other one has a commit, the rest have changed files.
pub fn busy_workspaces(home: &Home, files: usize, count: usize) -> (PathBuf, Vec<PathBuf>) {
    let repo = home.repo("repo");
    fill(&repo, files);
    commit_all(home, &repo, "files");
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces]\ninstant = \"never\"\n").unwrap();
    let mut paths = Vec::new();
    for n in 0..count {
        home.toft(&repo, &["add", &format!("work {n}")]).ok();
        let claim = home.toft(&repo, &["claim", "--ws", "--as", &format!("a{n}"), "--json"]).data();
        let path = PathBuf::from(claim["workspace"]["path"].as_str().unwrap());
        fs::write(path.join(format!("src/d0/f{n}.txt")), "changed\n").unwrap();
        fs::write(path.join(format!("new{n}.txt")), "new\n").unwrap();
        if n % 2 == 0 {
            commit_all(home, &path, "work");
        }
        paths.push(path);
    }
    (repo, paths)
}
