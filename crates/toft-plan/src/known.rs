//! The ledgers that a checkout uses besides the repository's own, and the routes of new issues: the settings of this
//! clone (`ledgers.json` beside its store), and the repository's list for everyone (`.toft/ledgers.toml` in its tree).
//!
//! The file in the tree is used only after the user trusted its exact content. Its schema is closed: names, locations
//! (relative, or the URL of a remote), `ro` or `rw`, routes. Nothing in it is executed.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toft_core::{
    issue::route::{Mode, Route},
    refusal::Refusal,
};
use toft_ledger::file::LedgerLock;
use toft_session::{
    config::data_home,
    error::{Error, io},
    setup::Approval,
};

use super::LedgerKind;

/// The settings of this clone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct KnownLedgers {
    /// The user is a contributor: they plan in a private ledger.
    #[serde(default)]
    pub(super) contributor: bool,
    /// The remote with the repository's own ledger in that case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<String>,
    #[serde(default)]
    pub(super) also: Vec<Also>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) routes: Vec<Route>,
}

/// A ledger besides the repository's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Also {
    pub(super) name: String,
    pub(super) place: LedgerKind,
    /// The ledger's directory, or the repository whose own ledger it is.
    pub(super) dir: PathBuf,
    #[serde(default)]
    pub(super) read_only: bool,
    /// `dir` is a repository: its own ledger is used, wherever that repository keeps it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) repository: bool,
    /// The remote of which `dir` is toft's local copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
}

const KNOWN: &str = "ledgers.json";

/// The settings of this clone; empty if there are none.
pub(super) fn known(state: &Path) -> Result<KnownLedgers, Error> {
    let path = state.join(KNOWN);
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| Error::Config { path: path.display().to_string(), problem: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(KnownLedgers::default()),
        Err(cause) => Err(Error::Io { doing: "read", path, cause }),
    }
}

/// Changes the settings of this clone atomically, under a lock.
pub(super) fn know(state: &Path, change: impl FnOnce(&mut KnownLedgers) -> Result<(), Error>) -> Result<(), Error> {
    let (path, lock) = (state.join(KNOWN), state.join("locks").join("ledgers.lock"));
    let turn = LedgerLock::take(&lock).map_err(io("lock", &lock))?;
    let mut known = known(state)?;
    change(&mut known)?;
    let unwritable = |error: serde_json::Error| Error::Config { path: KNOWN.into(), problem: error.to_string() };
    let text = serde_json::to_string_pretty(&known).map_err(unwritable)?;
    turn.replace(&path, |out| out.write_all(text.as_bytes())).map_err(io("write", &path)).map(drop)
}

/// Checks the name of a ledger.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !plain {
        return Err(format!("`{name}` is not a name: letters, digits, - and _"));
    }
    let reserved = [LedgerKind::Branch, LedgerKind::Tree].map(LedgerKind::as_str);
    match reserved.contains(&name) {
        true => Err(format!("`{name}` is what the repository's own ledger is called")),
        false => Ok(()),
    }
}

/// The shared list of ledgers in a repository's tree.
const LIST: &str = "ledgers.toml";
/// Maximum size of the list.
const LONGEST_LIST: u64 = 64 << 10;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct KnownFile {
    default: Option<String>,
    mode: Option<Mode>,
    ledgers: BTreeMap<String, FileLedger>,
    routes: Vec<Route>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLedger {
    place: String,
    #[serde(default)]
    access: Rights,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rights {
    Ro,
    #[default]
    Rw,
}

/// The list of ledgers in a repository's tree.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Its file.
    pub path: PathBuf,
    text: String,
}

impl Carried {
    /// The list in a tree, if there is one. Links are not followed.
    pub(crate) fn in_tree(root: &Path) -> Result<Option<Self>, Error> {
        let path = root.join(super::place::IN_TREE).join(LIST);
        let wrong = |problem: &str| Error::Config { path: path.display().to_string(), problem: problem.to_owned() };
        let seen = |path: &Path| match fs::symlink_metadata(path) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(io("read", path)(error)),
        };
        if !seen(&root.join(super::place::IN_TREE))?.is_some_and(|seen| seen.is_dir()) {
            return Ok(None);
        }
        match seen(&path)? {
            None => Ok(None),
            Some(seen) if !seen.is_file() => Err(wrong("is not a regular file")),
            Some(seen) if seen.len() > LONGEST_LIST => Err(wrong("is longer than 64 KiB")),
            Some(_) => {
                let text = toft_session::config::read_in_tree(&path).map_err(io("read", &path))?;
                Ok(Some(Self { path, text }))
            }
        }
    }

    /// Its content, line by line, as a person reads it before trusting it.
    pub fn lines(&self) -> Vec<String> {
        self.text.lines().map(str::to_owned).filter(|line| !line.trim().is_empty()).collect()
    }

    /// Whether the user trusted this exact content for this repository.
    pub fn trusted(&self, repository: &str) -> bool {
        self.approval(repository).given()
    }

    /// Trusts this exact content for this repository, or revokes the trust. A list that cannot be read is not trusted.
    pub fn trust(&self, repository: &str, yes: bool) -> Result<(), Error> {
        if yes {
            self.parse(Path::new("/"))?;
        }
        self.approval(repository).set(yes, &self.text)
    }

    fn approval(&self, repository: &str) -> Approval {
        Approval::of(&(repository, "ledgers", &self.text))
    }

    /// Parses it; paths are relative to `root`.
    pub(super) fn parse(&self, root: &Path) -> Result<KnownLedgers, Error> {
        let wrong = |problem: String| Error::Config { path: self.path.display().to_string(), problem };
        let file: KnownFile = toml::from_str(&self.text).map_err(|error| wrong(error.message().to_owned()))?;
        let mut also = Vec::new();
        for (name, FileLedger { place, access }) in file.ledgers {
            check_name(&name).map_err(wrong)?;
            let (dir, url) = match is_url(&place) {
                true => (copy_of(&place), Some(place)),
                false if Path::new(&place).is_absolute() || place.starts_with('~') => {
                    return Err(wrong(format!("ledgers.{name}: a place is relative to the repository, or a URL")));
                }
                false => (root.join(&place), None),
            };
            let read_only = access == Rights::Ro;
            let repository = url.is_some() || super::place::is_initialised(&dir);
            also.push(Also { name, place: LedgerKind::Shared, dir, read_only, repository, url });
        }
        for route in &file.routes {
            route.check().map_err(|refusal| wrong(refusal.to_string()))?;
        }
        Ok(KnownLedgers {
            also,
            default: file.default,
            mode: file.mode,
            routes: file.routes,
            ..KnownLedgers::default()
        })
    }
}

impl KnownLedgers {
    /// Adds the entries of a trusted list. The settings of this clone take precedence.
    pub(super) fn join(&mut self, list: Self) {
        let named = |name: &String| self.also.iter().any(|also| also.name == *name);
        let new: Vec<Also> = list.also.into_iter().filter(|also| !named(&also.name)).collect();
        self.also.extend(new);
        self.default = self.default.take().or(list.default);
        self.mode = self.mode.or(list.mode);
        self.routes.extend(list.routes);
    }
}

/// Whether a location is the URL of a remote, with a scheme that only git handles.
pub(super) fn is_url(place: &str) -> bool {
    let by_ssh = |(host, path): (&str, &str)| {
        let plain =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        !path.is_empty() && host.split_once('@').is_some_and(|(user, host)| plain(user) && plain(host))
    };
    ["https://", "http://", "ssh://", "file://"].iter().any(|scheme| place.starts_with(scheme))
        || place.split_once(':').is_some_and(by_ssh)
}

/// The path of the local copy of a remote's ledger.
pub(super) fn copy_of(url: &str) -> PathBuf {
    let digest = blake3::hash(url.as_bytes()).to_hex();
    data_home().join("ledgers").join(format!("{}.git", &digest[..16]))
}

/// The error for an unknown ledger name.
pub(super) fn unknown(name: &str) -> Error {
    Refusal::NotFound { what: "ledger".into(), text: name.to_owned() }.into()
}
