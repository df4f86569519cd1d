//! The sandbox of a command: what it may write, and whether it may use the network. It reports exactly what it
//! prevents.
//!
//! bubblewrap is used if it is installed and works, Landlock otherwise; with neither, a requested sandbox is refused.

use std::path::{Path, PathBuf};

use toft_session::{
    config::state_home,
    error::{Error, io as failed},
    session::Session,
};
use toft_store::private;

use super::process;

/// bubblewrap with read access to everything and no write access. It is not taken from a relative directory in `PATH`,
/// which would be in the workspace.
fn bubblewrap() -> Option<Vec<String>> {
    const WORDS: [&str; 6] = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"];
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
    /// It may use the network.
    pub network: bool,
}

/// The mechanism of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxKind {
    /// bubblewrap: separate namespaces.
    Bubblewrap,
    /// Landlock: rules in the kernel.
    Landlock {
        /// It can block TCP.
        tcp: bool,
    },
}

impl Sandbox {
    /// The mechanism that is available here, or why there is none.
    pub fn kind(&self) -> Result<SandboxKind, Error> {
        let works = |words: Vec<String>| {
            let words: Vec<&str> = words.iter().map(String::as_str).chain(["true"]).collect();
            process::succeeds(&words)
        };
        if bubblewrap().is_some_and(works) {
            return Ok(SandboxKind::Bubblewrap);
        }
        landlock().map(|tcp| SandboxKind::Landlock { tcp }).ok_or(Error::NoSandbox)
    }

    /// A description of what is prevented.
    pub fn promise(&self, kind: SandboxKind) -> String {
        let mut places = vec![
            "its workspace".to_owned(),
            "what a commit writes".to_owned(),
            "toft's store, ledgers and locks".to_owned(),
            "a temporary directory of its own".to_owned(),
        ];
        places.extend(self.writable.iter().map(|path| path.display().to_string()));
        let writes = format!("writes only {}; reads everything", places.join(", "));
        let network = match (self.network, kind) {
            (true, _) => "the network is open",
            (false, SandboxKind::Bubblewrap) => "no network",
            (false, SandboxKind::Landlock { tcp: false }) => "the network is open: this kernel cannot close it",
            (false, SandboxKind::Landlock { tcp: true }) => "no TCP; UDP and local sockets are open",
        };
        let by = match kind {
            SandboxKind::Bubblewrap => "bubblewrap",
            SandboxKind::Landlock { .. } => "Landlock",
        };
        format!("{by}: {writes}; {network}")
    }

    /// The command with the sandbox around it; `toft` is this program.
    pub(crate) fn around(&self, kind: SandboxKind, toft: &Path, dir: &Path, command: Vec<String>) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let mut words = match kind {
            SandboxKind::Bubblewrap => {
                let mut words = bubblewrap().unwrap_or_default();
                for path in self.writable.iter().filter(|path| path.exists()) {
                    words.extend(["--bind".to_owned(), text(path), text(path)]);
                }
                for path in self.fixed.iter().filter(|path| path.exists()) {
                    words.extend(["--ro-bind".to_owned(), text(path), text(path)]);
                }
                if !self.network {
                    words.push("--unshare-net".to_owned());
                }
                words.extend(["--chdir".to_owned(), text(dir)]);
                words
            }
            SandboxKind::Landlock { .. } => {
                let mut words = vec![text(toft), "sandboxed".to_owned()];
                words.extend(self.writable.iter().flat_map(|path| ["--write".to_owned(), text(path)]));
                if !self.network {
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

/// Applies the sandbox to this process, permanently.
#[cfg(target_os = "linux")]
pub fn enter(sandbox: &Sandbox) -> Result<(), Error> {
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
        RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
    };
    let abi = ABI::V5;
    let refused = |error: landlock::RulesetError| Error::Sandbox { cause: error.to_string() };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(abi))
        .map_err(refused)?;
    if !sandbox.network {
        rules = rules.handle_access(AccessNet::from_all(abi)).map_err(refused)?;
    }
    let mut rules = rules.create().map_err(refused)?;
    let devices = Path::new("/dev");
    for path in sandbox.writable.iter().map(PathBuf::as_path).chain([devices]) {
        // What is not there cannot be written to, and what appears later there may not.
        let Ok(below) = PathFd::new(path) else { continue };
        let access = if path.is_dir() {
            AccessFs::from_write(abi)
        } else {
            AccessFs::from_file(abi) & AccessFs::from_write(abi)
        };
        rules = rules.add_rule(PathBeneath::new(below, access)).map_err(refused)?;
    }
    match rules.restrict_self().map_err(refused)?.ruleset {
        RulesetStatus::NotEnforced => Err(Error::NoSandbox),
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

/// Applies the sandbox to this process, permanently.
#[cfg(not(target_os = "linux"))]
pub fn enter(_sandbox: &Sandbox) -> Result<(), Error> {
    Err(Error::NoSandbox)
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
