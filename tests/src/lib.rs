//! What the stories share: a home of their own, real repositories, and the installed binary.

pub mod agents;
#[cfg(target_os = "linux")]
pub mod browser;
pub mod containers;
#[cfg(target_os = "linux")]
pub mod far_faults;
#[cfg(target_os = "linux")]
pub mod far_network;
pub mod fleet;
pub mod fleet_machine;
pub mod fleet_work;
#[cfg(unix)]
pub mod forge;
pub mod issues;
pub mod kept;
pub mod lab;
pub mod lease_model;
pub mod models;
pub mod network;
#[cfg(unix)]
pub mod night;
pub mod older;
pub mod project;
#[cfg(unix)]
pub mod provider;
pub mod repositories;
pub mod share;
pub mod simulation;
#[cfg(unix)]
pub mod terminal;
pub mod traps;
pub mod workspaces;
#[cfg(unix)]
pub mod yard;

/// What almost every story uses.
#[cfg(unix)]
pub mod prelude {
    pub use std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        io::{BufRead as _, BufReader, Read as _, Write as _},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        path::{Path, PathBuf},
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    pub use serde_json::{Value, json};
    pub use toft_cluster::Cluster;

    pub use crate::{
        ChildGuard, FleetMachine, FleetServer, FleetTeam, Home, Said, Wire,
        agents::{self, data, issue, start_flow, started},
        has_postgresql,
        issues::{add, ledger, listed},
        new_store_on, postgresql,
        share::{Vcs, cloned, project_with, synced, users},
        sized, snapshot, toft_bin, tokens, tool_dir, until,
        workspaces::{Dice, Unmount, chmod, commit_all, may_mount, whole},
        yard::Yard,
    };
}

use std::{
    collections::BTreeMap,
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

pub use fleet::{FleetServer, Wire};
pub use fleet_machine::{FleetMachine, FleetTeam};
use serde_json::Value;
use tempfile::TempDir;
use toft_cluster::Cluster;

/// The binary under test: `TOFT_BIN`, else the one built beside the tests.
pub fn toft_bin() -> PathBuf {
    if let Some(path) = std::env::var_os("TOFT_BIN") {
        return path.into();
    }
    let me = std::env::current_exe().unwrap();
    let path = me.ancestors().nth(2).unwrap().join("toft");
    assert!(path.exists(), "{} is not built; run `cargo build -p toft-cli` or `cargo xtask check`", path.display());
    path
}

/// The directory of the stories in the checkout that tells them, which need not be the one that they were compiled in.
pub fn stories_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// Returns the directory that cargo builds in: `CARGO_TARGET_DIR`, or `target/` of the project.
pub fn build_dir() -> PathBuf {
    let default = || stories_dir().join("../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
}

/// Returns the directory of a program that `.ci/install` installs for tests: below `TOFT_TEST_TOOLS`, as `.ci/cache` sets it,
/// or `tools/` of the build directory.
pub fn tool_dir(name: &str) -> PathBuf {
    let dir = |name: &str| std::env::var_os(name).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    dir("TOFT_TEST_TOOLS").unwrap_or_else(|| build_dir().join("tools")).join(name)
}

/// Full size, as `cargo xtask long` runs it; otherwise the size for CI.
pub fn sized(ci: usize, long: usize) -> usize {
    if std::env::var_os("TOFT_LONG").is_some() { long } else { ci }
}

/// The PostgreSQL on which the kinds `leases` and `everywhere` are told again, each story behind a `toft serve` of its own.
fn story_server() -> Option<String> {
    std::env::var("TOFT_STORY_SERVER").ok()
}

/// Looks for PostgreSQL, which must be installed where nothing is skipped.
pub fn has_postgresql() -> bool {
    let available = toft_cluster::available();
    assert!(available || std::env::var_os("TOFT_TEST_ALL").is_none(), "PostgreSQL is not installed");
    available
}

/// A PostgreSQL of the story's own, if it is installed.
pub fn postgresql() -> Option<Cluster> {
    has_postgresql().then(Cluster::start)
}

/// Waits until something holds, for so many seconds.
pub fn until(seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < seconds, "not within {seconds} s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A process that ends with its story.
pub struct ChildGuard(pub Child);

impl Deref for ChildGuard {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for ChildGuard {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A URL for a store of its own on a server.
pub fn new_store_on(server: &str) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let sign = if server.contains('?') { '&' } else { '?' };
    format!("{server}{sign}schema=s{}_{now}", std::process::id())
}

/// A user's home: nothing of the real one is seen or touched.
pub struct Home {
    dir: TempDir,
    env: BTreeMap<String, String>,
    fleet: Option<FleetServer>,
}

impl Home {
    /// An empty home, outside of any repository: below `TOFT_TEST_TMP`, which the gate puts into memory, or where this
    /// system keeps temporary files.
    #[expect(clippy::new_without_default, reason = "making a directory is not a default")]
    pub fn new() -> Self {
        Self::within(&std::env::var_os("TOFT_TEST_TMP").map_or_else(std::env::temp_dir, PathBuf::from))
    }

    /// An empty home that is not below the directory for temporary files, which sandboxes have of their own.
    pub fn outside_of_tmp() -> Self {
        let dir = build_dir().join("tmp");
        fs::create_dir_all(&dir).unwrap();
        Self::within(&fs::canonicalize(dir).unwrap())
    }

    /// An empty home below `base`.
    pub fn within(base: &Path) -> Self {
        let dir = tempfile::tempdir_in(base).unwrap();
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        let env = [
            ("HOME", home.display().to_string()),
            ("PATH", std::env::var("PATH").unwrap()),
            ("USER", "ana".into()),
            ("TZ", "UTC".into()),
            ("GIT_AUTHOR_NAME", "Ana".into()),
            ("GIT_AUTHOR_EMAIL", "ana@example.org".into()),
            ("GIT_COMMITTER_NAME", "Ana".into()),
            ("GIT_COMMITTER_EMAIL", "ana@example.org".into()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("HGUSER", "ana".into()),
            // Most stories end where work is done; `until_landed` goes on.
            ("TOFT_LAND_CLOSE", "done".into()),
            // Stories compare ids.
            ("TOFT_IDS", "whole".into()),
            ("TOFT_STORY", dir.path().display().to_string()),
        ];
        let env = env.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let mut home = Self { dir, env, fleet: None };
        if let Some(server) = story_server() {
            home.behind_a_server(Some(&new_store_on(&server)));
        }
        home
    }

    /// From now on every command asks a server of its own, which has this store, or a file.
    pub fn behind_a_server(&mut self, store: Option<&str>) {
        let file = self.path().join("fleet.db").display().to_string();
        let server = FleetServer::start(self, store.unwrap_or(&file), &["--hold-from", "0"]);
        let secret = server.token(self, "fleet", "admin");
        self.set("TOFT_STORE", &server.url);
        self.set("TOFT_TOKEN", &secret);
        self.fleet = Some(server);
    }

    /// From now on every command uses this store.
    pub fn use_store(&mut self, store: &str) {
        self.env.insert("TOFT_STORE".into(), store.into());
    }

    /// From now on every command has this variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.into(), value.into());
    }

    /// From now on issues are closed when their work has landed, as they are by default.
    pub fn until_landed(&mut self) {
        self.env.remove("TOFT_LAND_CLOSE");
    }

    /// From now on text shows ids as people see them.
    pub fn show_short_ids(&mut self) {
        self.env.remove("TOFT_IDS");
    }

    /// What every command has under this name.
    pub fn variable(&self, name: &str) -> String {
        self.env.get(name).cloned().unwrap_or_default()
    }

    /// From now on every command finds `toft` on its path.
    #[cfg(unix)]
    pub fn toft_on_path(&mut self) {
        let bin = self.path().join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(toft_bin(), bin.join("toft")).unwrap();
        let path = format!("{}:{}", bin.display(), self.env["PATH"]);
        self.set("PATH", &path);
    }

    /// Whether the repositories share a store on a server.
    pub fn on_server(&self) -> bool {
        self.env.contains_key("TOFT_STORE")
    }

    /// Whether a toft server has the store.
    pub fn asks_a_server(&self) -> bool {
        self.fleet.is_some()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A command in this home.
    pub fn command(&self, dir: &Path, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(dir).env_clear().envs(&self.env).stdin(Stdio::null());
        command
    }

    /// Runs another program; it must succeed.
    pub fn run(&self, dir: &Path, program: &str, args: &[&str]) -> String {
        let output = self.command(dir, program, args).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs toft with more environment.
    pub fn toft_with(&self, dir: &Path, env: &[(&str, &str)], args: &[&str]) -> Said {
        let output = self.command(dir, toft_bin(), args).envs(env.iter().copied()).output().unwrap();
        Said::from(args, &output)
    }

    /// Runs toft.
    pub fn toft(&self, dir: &Path, args: &[&str]) -> Said {
        self.toft_with(dir, &[], args)
    }

    /// Starts toft; nobody listens to it.
    pub fn start(&self, dir: &Path, args: &[&str]) -> Child {
        self.command(dir, toft_bin(), args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Claims in a workspace; gives where that is.
    pub fn claim_workspace(&self, dir: &Path, args: &[&str]) -> PathBuf {
        let claim = self.toft(dir, &[&["claim", "--ws", "--json"], args].concat()).data();
        claim["workspace"]["path"].as_str().unwrap_or_else(|| panic!("{claim}")).into()
    }

    /// An empty home, and what is made in it.
    pub fn with<T>(make: impl FnOnce(&Self) -> T) -> (Self, T) {
        let home = Self::new();
        let made = make(&home);
        (home, made)
    }

    /// Writes the user's own configuration.
    pub fn configure(&self, text: impl AsRef<str>) {
        let dir = self.path().join("home/.config/toft");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("config.toml"), text.as_ref()).unwrap();
    }

    /// An empty home, and in it a git repository with one commit and a store.
    pub fn with_repository(name: &str) -> (Self, PathBuf) {
        Self::with(|home| home.repo(name))
    }

    /// A git repository with one commit and a store.
    pub fn repo(&self, name: &str) -> PathBuf {
        let dir = self.git(name);
        self.toft(&dir, &["init"]).ok();
        dir
    }

    /// A git repository with one commit.
    pub fn git(&self, name: &str) -> PathBuf {
        let dir = self.path().join(name);
        fs::create_dir(&dir).unwrap();
        self.run(&dir, "git", &["init", "-q", "-b", "main"]);
        // Repositories that begin with the same commit are one repository.
        self.run(&dir, "git", &["commit", "-q", "--allow-empty", "-m", &format!("first of {name}")]);
        dir
    }
}

/// What toft said.
#[derive(Debug)]
pub struct Said {
    /// What it was asked.
    pub args: Vec<String>,
    /// Its exit code.
    pub code: i32,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub err: String,
}

impl Said {
    /// What a command said that was asked this.
    pub fn from(args: &[&str], output: &Output) -> Self {
        Self {
            args: args.iter().map(ToString::to_string).collect(),
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It must have succeeded; gives its stdout.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// It must have failed with this code; gives its stderr.
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        self.err
    }

    /// It must have succeeded and say this.
    pub fn says(self, text: impl AsRef<str>) {
        self.says_all(&[text.as_ref()]);
    }

    /// It must have succeeded and say all of this.
    pub fn says_all(self, texts: &[&str]) {
        assert_eq!(self.code, 0, "{self:?}");
        texts.iter().for_each(|text| assert!(self.out.contains(text), "no `{text}`: {self:?}"));
    }

    /// It must have failed with this code and say this.
    pub fn refuses(self, code: i32, text: impl AsRef<str>) {
        self.refuses_all(code, &[text.as_ref()]);
    }

    /// It must have failed with this code and say all of this.
    pub fn refuses_all(self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        texts.iter().for_each(|text| assert!(self.err.contains(text), "no `{text}`: {self:?}"));
    }

    /// The data of its JSON.
    pub fn data(self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        let mut value: Value = serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(value["toft"], 1);
        value["data"].take()
    }
}

/// How many tokens a model reads; by the dearer of two tokenizers.
pub fn tokens(text: &str) -> usize {
    let counts = [tiktoken_rs::o200k_base_singleton(), tiktoken_rs::cl100k_base_singleton()];
    counts.map(|counter| counter.encode_ordinary(text).len()).into_iter().max().unwrap_or(0)
}

/// Every file below a directory with its content: to see that nothing changed.
pub fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut look = vec![dir.to_owned()];
    while let Some(dir) = look.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                look.push(path);
            } else {
                let content = fs::read(&path).unwrap_or_default();
                files.insert(path, content);
            }
        }
    }
    files
}
