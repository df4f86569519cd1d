//! The sandbox of a command: what it may write, what it may read, and which hosts it may reach. It reports exactly what
//! it prevents.
//!
//! bubblewrap makes it; where it does not work, a requested sandbox is refused. Landlock is used only where it is asked
//! for: a guard against mistakes, and no boundary. toft in a sandbox calls toft outside (`socket.rs`), so neither the
//! store nor ledgers can be written inside.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use toft_session::{
    config::{home, state_home},
    error::{Error, io as failed},
    registry::registered_stores,
    session::Session,
};
use toft_store::private;

use super::process;

/// bubblewrap with read access to everything and no write access. Without a user namespace, root would keep its
/// capabilities; without one for processes, `/proc/PID/root` would lead out; other devices could be a disk. It is not
/// taken from a relative directory in `PATH`, which would be in the workspace.
fn bubblewrap() -> Option<Vec<String>> {
    const WORDS: [&str; 12] = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--new-session",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("bwrap"));
    let program = found.find(|file| file.is_file())?.display().to_string();
    Some([program].into_iter().chain(WORDS.map(str::to_owned)).collect())
}

/// What a command in it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Paths that it may write to, besides its workspace; everything else is read-only.
    pub writable: Vec<PathBuf>,
    /// Files below those paths that it may not write, with bubblewrap.
    pub fixed: Vec<PathBuf>,
    /// Directories and files that it cannot read, with bubblewrap.
    pub hidden: Vec<PathBuf>,
    /// It cannot read the users' homes.
    pub strict: bool,
    /// Paths in homes that it can read nevertheless.
    pub readable: Vec<PathBuf>,
    pub network: Network,
    /// Landlock instead of bubblewrap: a guard, no boundary.
    pub guard: bool,
}

/// How a path is seen inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    ReadOnly,
    Writable,
    /// A directory is empty, and so is a file.
    Hidden,
    /// A directory is empty, and can be written.
    Private,
}

/// What programs need of `/run`: names of hosts, and the programs of NixOS.
const NEEDED_IN_RUN: [&str; 6] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/current-system",
    "/run/wrappers",
    "/run/opengl-driver",
];

/// The network of a command in a sandbox or a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Open,
    Closed,
    /// Only these hosts, through a proxy for HTTP.
    Hosts(Vec<String>),
}

impl Network {
    /// The hosts that a proxy passes on to.
    pub(super) fn hosts(&self) -> Option<&[String]> {
        match self {
            Self::Hosts(hosts) => Some(hosts),
            Self::Open | Self::Closed => None,
        }
    }
}

/// The mechanism of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxKind {
    /// bubblewrap: separate namespaces.
    Bubblewrap,
    /// Landlock: rules in the kernel, which guard against mistakes.
    Landlock {
        /// It can block TCP.
        tcp: bool,
    },
}

impl Sandbox {
    /// The mechanism that is available here, or why there is none.
    pub fn kind(&self) -> Result<SandboxKind, Error> {
        if self.guard {
            return landlock().map(|tcp| SandboxKind::Landlock { tcp }).ok_or(Error::NoLandlock);
        }
        // It takes longer to find out than to start a command, and does not change while a slot runs.
        static BUBBLEWRAP_WORKS: OnceLock<bool> = OnceLock::new();
        let works = |words: Vec<String>| {
            let words: Vec<&str> = words.iter().map(String::as_str).chain(["true"]).collect();
            process::succeeds(&words)
        };
        match *BUBBLEWRAP_WORKS.get_or_init(|| bubblewrap().is_some_and(works)) {
            true => Ok(SandboxKind::Bubblewrap),
            false => Err(Error::NoSandbox),
        }
    }

    /// What is seen differently from outside: a directory comes before what is in it.
    fn mounts(&self) -> BTreeMap<PathBuf, View> {
        let existing = |path: &&str| Path::new(path).exists();
        // Other programs listen there: a shell of the user's, a bus, a daemon that starts containers.
        let mut mounts: BTreeMap<PathBuf, View> =
            ["/tmp", "/run"].iter().filter(|path| existing(path)).map(|path| (path.into(), View::Private)).collect();
        mounts.extend(NEEDED_IN_RUN.iter().filter(|path| existing(path)).map(|path| (path.into(), View::ReadOnly)));
        if self.strict {
            mounts.extend(homes().into_iter().map(|path| (path, View::Hidden)));
        }
        mounts.extend(self.seen_differently());
        mounts
    }

    /// What a container, which has nothing of this machine otherwise, sees of it.
    pub(super) fn mounts_in_container(&self) -> BTreeMap<PathBuf, View> {
        let mut mounts = self.seen_differently();
        let seen: Vec<PathBuf> =
            mounts.iter().filter(|(_, view)| **view != View::Hidden).map(|(path, _)| path.clone()).collect();
        mounts.retain(|path, view| *view != View::Hidden || seen.iter().any(|seen| path.starts_with(seen)));
        mounts
    }

    /// What was asked for, path by path.
    fn seen_differently(&self) -> BTreeMap<PathBuf, View> {
        let mut mounts = BTreeMap::new();
        let mut put = |paths: &[PathBuf], view: View| {
            mounts.extend(paths.iter().filter(|path| path.exists()).map(|path| (path.clone(), view)));
        };
        put(&self.readable, View::ReadOnly);
        put(&self.hidden, View::Hidden);
        put(&self.writable, View::Writable);
        put(&self.fixed, View::ReadOnly);
        mounts
    }

    /// A description of what is prevented.
    pub fn promise(&self, kind: SandboxKind) -> String {
        let mut places = vec![
            "its workspace".to_owned(),
            "what a commit writes".to_owned(),
            "a temporary directory of its own".to_owned(),
        ];
        places.extend(self.writable.iter().map(|path| path.display().to_string()));
        let reads = match (self.strict, kind) {
            (true, _) => "reads neither homes nor toft's files",
            (false, SandboxKind::Bubblewrap) => "reads everything but toft's files, /tmp and /run",
            (false, SandboxKind::Landlock { .. }) => "reads everything",
        };
        let network = match (&self.network, kind) {
            (Network::Open, SandboxKind::Bubblewrap) => "the network is open".to_owned(),
            (Network::Closed, SandboxKind::Bubblewrap) => "no network".to_owned(),
            (Network::Hosts(hosts), SandboxKind::Bubblewrap) => format!("reaches only {}", hosts.join(", ")),
            (Network::Closed, SandboxKind::Landlock { tcp: true }) => {
                "no TCP, but UDP, MPTCP and local sockets; modes, owners and times of files can be changed".to_owned()
            }
            (_, SandboxKind::Landlock { .. }) => {
                "the network is open; modes, owners and times of files can be changed".to_owned()
            }
        };
        let by = match kind {
            SandboxKind::Bubblewrap => "bubblewrap",
            SandboxKind::Landlock { .. } => "Landlock, a guard and no boundary",
        };
        format!("{by}: writes only {}; {reads}; {network}", places.join(", "))
    }

    /// The command with the sandbox around it; `toft` is this program.
    pub(crate) fn around(&self, kind: SandboxKind, toft: &Path, dir: &Path, command: Vec<String>) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut words = match kind {
            SandboxKind::Bubblewrap => {
                let mut words = bubblewrap().unwrap_or_default();
                for (path, view) in self.mounts() {
                    let path = text(&path);
                    words.extend(match view {
                        View::Writable if path.starts_with("/dev/") => {
                            vec!["--dev-bind".to_owned(), path.clone(), path]
                        }
                        View::ReadOnly => vec!["--ro-bind".to_owned(), path.clone(), path],
                        View::Writable => vec!["--bind".to_owned(), path.clone(), path],
                        View::Private => vec!["--tmpfs".to_owned(), path],
                        View::Hidden if Path::new(&path).is_dir() => vec!["--tmpfs".to_owned(), path],
                        View::Hidden => vec!["--ro-bind".to_owned(), "/dev/null".to_owned(), path],
                    });
                }
                for path in self.hidden.iter().filter(|path| path.is_dir()) {
                    words.extend(["--remount-ro".to_owned(), text(path)]);
                }
                if self.network != Network::Open {
                    words.push("--unshare-net".to_owned());
                }
                words.extend(["--chdir".to_owned(), text(dir)]);
                if self.network.hosts().is_some() {
                    words.extend(["--".to_owned(), text(toft), "sandboxed".to_owned(), "--proxy".to_owned()]);
                }
                words
            }
            SandboxKind::Landlock { .. } => {
                let mut words = vec![text(toft), "sandboxed".to_owned(), "--landlock".to_owned()];
                words.extend(self.writable.iter().flat_map(|path| ["--write".to_owned(), text(path)]));
                if self.network != Network::Open {
                    words.push("--offline".to_owned());
                }
                words
            }
        };
        words.push("--".to_owned());
        words.extend(command);
        words
    }
}

impl Sandbox {
    /// The words before a command that checks work: it writes its own directory only, and reads none of toft's files.
    pub fn around_check(&self, session: &Session, dir: &Path) -> Result<Vec<String>, Error> {
        let program = std::env::current_exe().map_err(toft_session::error::io("find", Path::new("toft")))?;
        let mut sandbox = self.clone();
        sandbox.writable.push(dir.to_owned());
        sandbox.hidden = toft_files(session);
        let checkout = session.located().checkout.as_ref();
        sandbox.readable.extend(checkout.map(|checkout| checkout.common_dir.clone()));
        // Only an agent has a proxy to hosts.
        if sandbox.network.hosts().is_some() {
            sandbox.network = Network::Closed;
        }
        Ok(sandbox.around(sandbox.kind()?, &program, dir, Vec::new()))
    }
}

/// toft's own files: of this repository, of every other that this user has, and the user's.
pub(super) fn toft_files(session: &Session) -> Vec<PathBuf> {
    let located = session.located();
    let own = located.checkout.as_ref().map(|checkout| checkout.state_dir());
    let mut files: Vec<PathBuf> = own.into_iter().chain([state_home()]).collect();
    // One that cannot be listed is not known to the agent either.
    let stores = registered_stores().unwrap_or_default();
    for store in stores.iter().map(PathBuf::as_path).chain(located.store.file()) {
        match store.parent().filter(|dir| dir.ends_with("toft") && dir.join("ledger").is_dir()) {
            Some(dir) => files.push(dir.to_owned()),
            None => {
                let beside = |ending: &str| PathBuf::from(format!("{}{ending}", store.display()));
                files.extend([store.to_owned(), beside("-wal"), beside("-shm"), store.with_file_name("blobs")]);
            }
        }
    }
    files
}

/// The directories with the users' own files.
fn homes() -> Vec<PathBuf> {
    let known = ["/home", "/root", "/Users", "/var/root"].map(PathBuf::from);
    let mut homes: Vec<PathBuf> = known.into_iter().chain([home()]).filter(|dir| dir.is_dir()).collect();
    homes.sort();
    homes.dedup_by(|inner, outer| inner.starts_with(outer));
    homes
}

/// toft's own files that an agent writes when it plans, saves and finishes: the store itself, and directories of
/// records. They include neither configuration nor the user's trust decisions, nor files of other workspaces and
/// attempts.
pub(super) fn of_toft(session: &Session) -> Result<Vec<PathBuf>, Error> {
    const RECORDS: [&str; 8] = ["locks", "index", "fences", "holds", "sessions", "blobs", "deleted", "sync"];
    let located = session.located();
    let mut writable: Vec<PathBuf> = Vec::new();
    if let Some(checkout) = &located.checkout {
        let state = checkout.state_dir();
        writable.extend(RECORDS.iter().map(|name| state.join(name)));
    }
    if !located.own_store() {
        writable.extend(["locks", "fences", "holds"].map(|name| state_home().join(name)));
    }
    if let Some(store) = located.store.file() {
        writable.push(store.with_file_name("blobs"));
    }
    for dir in &writable {
        private::create_dir_all(dir).map_err(failed("make", dir))?;
    }
    if let Some(store) = located.store.file() {
        let beside = |ending: &str| PathBuf::from(format!("{}{ending}", store.display()));
        writable.extend([store.to_owned(), beside("-wal"), beside("-shm"), store.with_extension("turns")]);
    }
    Ok(writable)
}

/// What Landlock enforces for a process and everything that it starts.
#[derive(Clone, Debug, Default)]
pub struct LandlockRules {
    /// Paths that may be written.
    pub write: Vec<PathBuf>,
    /// TCP is closed.
    pub offline: bool,
}

/// Applies the rules to this thread, permanently.
#[cfg(target_os = "linux")]
pub fn enter(wanted: &LandlockRules) -> Result<(), Error> {
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
        RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
    };
    let abi = ABI::V5;
    let refused = |error: landlock::RulesetError| Error::Sandbox { cause: error.to_string() };
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut rules = rules.handle_access(AccessFs::from_write(abi)).map_err(refused)?;
    if wanted.offline {
        rules = rules.handle_access(AccessNet::from_all(abi)).map_err(refused)?;
    }
    // Signals to others, and to programs that listen without a path.
    let rules = rules.scope(Scope::from_all(ABI::V6)).map_err(refused)?;
    let mut rules = rules.create().map_err(refused)?;
    // No device that could be a disk.
    const DEVICES: [&str; 7] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"];
    let write = AccessFs::from_write(abi) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
    let written = wanted.write.iter().map(PathBuf::as_path).chain(DEVICES.map(Path::new));
    for path in written {
        // What is not there cannot be written to, and what appears later there may not.
        let Ok(below) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { write } else { AccessFs::from_file(abi) & write };
        rules = rules.add_rule(PathBeneath::new(below, access)).map_err(refused)?;
    }
    match rules.restrict_self().map_err(refused)?.ruleset {
        RulesetStatus::NotEnforced => Err(Error::NoLandlock),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// Applies the rules to this thread, permanently.
#[cfg(not(target_os = "linux"))]
pub fn enter(_wanted: &LandlockRules) -> Result<(), Error> {
    Err(Error::NoLandlock)
}

/// Whether this kernel has Landlock, and whether it can block TCP.
#[cfg(target_os = "linux")]
fn landlock() -> Option<bool> {
    use landlock::{ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
    let strict = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict().handle_access(AccessFs::from_write(ABI::V1)).and_then(Ruleset::create).ok()?;
    Some(strict().handle_access(AccessNet::from_all(ABI::V4)).and_then(Ruleset::create).is_ok())
}

#[cfg(not(target_os = "linux"))]
fn landlock() -> Option<bool> {
    None
}
