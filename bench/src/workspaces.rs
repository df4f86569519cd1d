//! Workspaces: plain and instant ones beside bare git, in one run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use crate::toft_bin;

/// Each thing is done so often; the middle counts.
const ROUNDS: usize = 6;
/// So many workspaces are weighed.
const WEIGHED: usize = 20;

pub(crate) fn run(sizes: &[usize]) {
    println!(
        "| files | bare `worktree add` | plain | ratio, aim ≤ 1.1 | instant | bare / instant, aim ≥ 50 | with `status`, aim ≥ 8 | to `--no-checkout` and a mount, aim ≤ 2 |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for size in sizes {
        one(*size);
    }
    weigh();
}

/// A repository in a home of its own; what is mounted there is unmounted when it goes.
struct Yard {
    dir: tempfile::TempDir,
}

impl Yard {
    fn new(files: usize) -> Self {
        let yard = Self { dir: tempfile::tempdir().expect("a directory") };
        let repo = yard.repo();
        for n in 0..files {
            let dir = repo.join(format!("src/d{}", n / 100));
            fs::create_dir_all(&dir).expect("a directory");
            fs::write(dir.join(format!("f{n}.txt")), format!("file {n} some text here\n").repeat(400)).expect("a file");
        }
        fs::create_dir_all(&repo).expect("a directory");
        fs::write(repo.join(".gitignore"), "target/\n").expect("a file");
        for args in [
            &["init", "-q", "-b", "main"][..],
            &["config", "gc.auto", "0"],
            &["config", "user.name", "bench"],
            &["config", "user.email", "bench@example.org"],
            &["add", "."],
            &["commit", "-q", "-m", "files"],
            &["repack", "-a", "-d", "-q"],
        ] {
            yard.git(&repo, args);
        }
        yard.toft(&["init"]);
        yard
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("api")
    }

    fn ran(&self, dir: &Path, program: &Path, args: &[&str]) -> String {
        let output = Command::new(program).args(args).current_dir(dir).env("HOME", self.dir.path()).output();
        let output = output.expect("a program that runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn git(&self, dir: &Path, args: &[&str]) -> String {
        self.ran(dir, Path::new("git"), args)
    }

    fn toft(&self, args: &[&str]) -> String {
        self.ran(&self.repo(), &toft_bin(), args)
    }

    fn configure(&self, text: &str) {
        fs::write(self.repo().join(".git/toft/config.toml"), format!("[workspaces]\n{text}\n")).expect("a file");
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let here = self.dir.path().display().to_string();
        for at in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&here)) {
            let _ = Command::new("umount").arg(at).status();
        }
    }
}

/// How long something takes once what was written before is on disk.
fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let synced = Command::new("sync").status();
    assert!(synced.is_ok_and(|status| status.success()), "sync");
    let start = Instant::now();
    let made = run();
    (start.elapsed(), made)
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn one(files: usize) {
    let yard = Yard::new(files);
    let repo = yard.repo();
    let (mut bare, mut bare_status, mut plain, mut instant, mut instant_status, mut floor) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    yard.configure("instant = \"always\"");
    yard.toft(&["ws", "create", "--name", "first"]);
    for n in 0..ROUNDS {
        let at = |kind: &str| yard.dir.path().join(format!("{kind}{n}"));
        let name = |kind: &str| format!("{kind}{n}");
        let mut one_bare = || {
            let path = at("bare").display().to_string();
            let add = timed(|| yard.git(&repo, &["worktree", "add", "-q", "-b", &name("bare"), &path])).0;
            bare.push(add);
            bare_status.push(add + timed(|| yard.git(&at("bare"), &["status", "--porcelain"])).0);
            fs::remove_dir_all(at("bare")).expect("it goes");
        };
        let mut one_plain = || {
            yard.configure("instant = \"never\"");
            let (took, made) = timed(|| yard.toft(&["ws", "create", "--name", &name("plain"), "-q"]));
            plain.push(took);
            fs::remove_dir_all(made).expect("it goes");
        };
        // What one leaves to be written slows the next: they take turns in going first.
        if n % 2 == 0 {
            one_bare();
            one_plain();
        } else {
            one_plain();
            one_bare();
        }
        yard.configure("instant = \"always\"");
        let (took, made) = timed(|| yard.toft(&["ws", "create", "--name", &name("instant"), "-q"]));
        instant.push(took);
        let (looked, said) = timed(|| yard.git(Path::new(&made), &["status", "--porcelain"]));
        assert_eq!(said, "", "a fresh one is clean");
        instant_status.push(took + looked);
        let path = at("empty").display().to_string();
        let add = ["worktree", "add", "-q", "--no-checkout", "-b", &name("empty"), &path];
        let added = timed(|| yard.git(&repo, &add)).0;
        floor.push(added + mount(yard.dir.path(), n));
    }
    let [bare, bare_status, plain, instant, instant_status, floor] =
        [bare, bare_status, plain, instant, instant_status, floor].map(middle);
    let times = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    println!(
        "| {files} | {bare:.1?} | {plain:.1?} | {:.2} | {instant:.1?} | {:.0} | {:.0} | {:.2} |",
        times(plain, bare),
        times(bare, instant),
        times(bare_status, instant_status),
        times(instant, floor),
    );
}

/// How long a bare mount takes.
fn mount(dir: &Path, n: usize) -> Duration {
    let layer = |name: &str| {
        let path = dir.join(format!("mount{n}-{name}"));
        fs::create_dir_all(&path).expect("a directory");
        path.display().to_string()
    };
    let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(layer);
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let took = timed(|| Command::new("mount").args(["-t", "overlay", "bare", "-o", &options, &at]).status()).0;
    let _ = Command::new("umount").arg(&at).status();
    took
}

/// What twenty workspaces with a large artefact directory take on disk.
fn weigh() {
    let yard = Yard::new(2_000);
    let repo = yard.repo();
    fs::create_dir_all(repo.join("target")).expect("a directory");
    for n in 0..50 {
        fs::write(repo.join(format!("target/{n}.bin")), vec![n; 10 << 20]).expect("a file");
    }
    yard.configure("instant = \"always\"\nwarm = [\"target\"]");
    let used = |dir: &Path| {
        let said = Command::new("du").args(["-sxm", "--"]).arg(dir).output().expect("du runs");
        String::from_utf8_lossy(&said.stdout).split('\t').next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    let made = (0..WEIGHED).map(|n| yard.toft(&["ws", "create", "--name", &format!("w{n}"), "-q"]));
    let parents: Vec<PathBuf> = made.map(|path| Path::new(&path).parent().expect("a parent").to_owned()).collect();
    let shared = used(&parents[0]);
    let bare = yard.dir.path().join("bare");
    let path = bare.join("0").display().to_string();
    yard.git(&repo, &["worktree", "add", "-q", "--detach", &path]);
    yard.ran(&repo, Path::new("cp"), &["-r", "target", &format!("{path}/target")]);
    let each = used(&bare);
    println!(
        "\n{WEIGHED} workspaces with 500 MB of artefacts each: {shared} MB; bare worktrees with a copy each: {} MB ({each} MB for one).",
        each * WEIGHED as u64
    );
}
