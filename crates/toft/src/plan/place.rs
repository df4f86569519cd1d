//! Where ledgers are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toft_core::refusal::Refusal;
use toft_ledger::{clock::Replica, file::Turn, open};
use toft_store::private;
use toft_vcs::{
    Checkout, Vcs,
    exchange::{self, Fingerprint},
};

use crate::{
    config::{data_home, state_home},
    error::{Error, io},
    session::{Toft, random_mint},
};

/// What kind of place a ledger is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Beside the repository: nothing in the working tree, one for all worktrees.
    Branch,
    /// In the working tree, under whatever VCS it has.
    Tree,
    /// Of its own, for one person's plans, whatever repository they are for.
    Planning,
    /// Any other directory.
    Shared,
}

impl Place {
    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Tree => "tree",
            Self::Planning => "planning",
            Self::Shared => "shared",
        }
    }
}

/// One ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// What it is called.
    pub name: String,
    /// What kind of place it is in.
    pub place: Place,
    /// Its directory.
    pub dir: PathBuf,
    /// It is read and never written.
    pub read_only: bool,
    /// New issues go there unless told otherwise.
    pub first: bool,
    /// Others keep it: what is written to it here is not sent.
    pub kept_by_others: bool,
    /// What its writers wait for each other at.
    #[serde(skip)]
    pub(super) lock: PathBuf,
}

/// What this clone knows of ledgers besides the repository's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// Whoever plans here does so in private.
    #[serde(default)]
    contributor: bool,
    /// The remote that keeps the repository's own ledger then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    #[serde(default)]
    also: Vec<Also>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Also {
    name: String,
    place: Place,
    dir: PathBuf,
    #[serde(default)]
    read_only: bool,
}

/// The directory in a working tree.
const IN_TREE: &str = ".toft";
pub(super) const ISSUES: &str = "issues.jsonl";
pub(super) const ARCHIVE: &str = "archive";

impl Ledger {
    /// The repository's own.
    fn own(place: Place, dir: PathBuf, state: &Path) -> Self {
        let name = place.as_str().to_owned();
        let lock = state.join("locks").join(format!("{name}.lock"));
        Self { name, place, dir, read_only: false, first: false, kept_by_others: false, lock }
    }

    /// One that several repositories may write to; their writers wait at the same place.
    fn also(Also { name, place, dir, read_only }: Also) -> Self {
        let print = blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex();
        let lock = state_home().join("locks").join(format!("{}.lock", &print[..16]));
        Self { name, place, dir, read_only, first: false, kept_by_others: false, lock }
    }

    /// The file that is written to.
    pub fn issues(&self) -> PathBuf {
        self.dir.join(ISSUES)
    }

    /// Says why nothing could be written to it now, as far as that can be known before anything is claimed: it is read-only,
    /// its file or directory may not be written, or the disk is full.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        if self.read_only {
            let problem = format!("`{}` is read and never written here", self.name);
            return Err(Refusal::Invalid { field: "ledger".into(), problem }.into());
        }
        let path = self.issues();
        open::refuse_links(&self.dir, ISSUES).map_err(io("write", &path))?;
        match fs::OpenOptions::new().append(true).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            opened => drop(opened.map_err(io("write", &path))?),
        }
        check_room(&self.dir).map_err(io("write", &path))
    }

    /// Every file of it, by its name within the ledger; the one that is written to first.
    pub(super) fn files(&self) -> Result<Vec<String>, Error> {
        let mut files = vec![ISSUES.to_owned()];
        let archive = self.dir.join(ARCHIVE);
        let plain = |name: &str| open::refuse_links(&self.dir, name).map_err(io("read", &self.dir));
        plain(ISSUES)?;
        plain(&format!("{ARCHIVE}/"))?;
        let found = match fs::read_dir(&archive) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
            Err(cause) => return Err(Error::Io { doing: "read", path: archive, cause }),
        };
        for entry in found {
            let name = entry.map_err(io("read", &archive))?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".jsonl") {
                plain(&format!("{ARCHIVE}/{name}"))?;
                files.push(format!("{ARCHIVE}/{name}"));
            }
        }
        files[1..].sort();
        Ok(files)
    }

    /// Where bytes are kept that nobody understands.
    pub(super) fn quarantine(&self) -> PathBuf {
        self.dir.join("quarantine")
    }
}

/// What a checkout sees.
pub(super) struct Seen {
    /// Ledgers, the one that new issues go to first.
    pub(super) ledgers: Vec<Ledger>,
    pub(super) contributor: bool,
    pub(super) upstream: Option<String>,
}

/// The ledgers that a checkout sees.
pub(super) fn ledgers(checkout: &Checkout) -> Result<Seen, Error> {
    let (state, tree) = (checkout.state_dir(), checkout.root.join(IN_TREE));
    let in_tree = !matches!(checkout.vcs, Vcs::Git | Vcs::Jj) || tree.join(ISSUES).exists();
    let own = match in_tree {
        true => Ledger::own(Place::Tree, tree, &state),
        false => Ledger::own(Place::Branch, state.join("ledger"), &state),
    };
    let known = known(&state)?;
    let mut ledgers: Vec<Ledger> = std::iter::once(own).chain(known.also.into_iter().map(Ledger::also)).collect();
    if known.contributor {
        ledgers[0].kept_by_others = true;
        ledgers.sort_by_key(|ledger| ledger.place != Place::Planning);
    }
    ledgers[0].first = true;
    Ok(Seen { ledgers, contributor: known.contributor, upstream: known.upstream })
}

const KNOWN: &str = "ledgers.json";

fn known(state: &Path) -> Result<Known, Error> {
    let path = state.join(KNOWN);
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| Error::Config { path: path.display().to_string(), problem: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Known::default()),
        Err(cause) => Err(Error::Io { doing: "read", path, cause }),
    }
}

/// Changes what this clone knows of ledgers, one at a time and all or nothing.
fn know(state: &Path, change: impl FnOnce(&mut Known) -> Result<(), Error>) -> Result<(), Error> {
    let (path, lock) = (state.join(KNOWN), state.join("locks").join("ledgers.lock"));
    let turn = Turn::take(&lock).map_err(io("lock", &lock))?;
    let mut known = known(state)?;
    change(&mut known)?;
    let unwritable = |error: serde_json::Error| Error::Config { path: KNOWN.into(), problem: error.to_string() };
    let text = serde_json::to_string_pretty(&known).map_err(unwritable)?;
    turn.replace(&path, |out| out.write_all(text.as_bytes())).map_err(io("write", &path)).map(drop)
}

/// Lets a checkout see another ledger.
pub(crate) fn add(checkout: &Checkout, name: &str, dir: &Path, read_only: bool) -> Result<(), Error> {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !plain {
        let problem = format!("`{name}` is not a name: letters, digits, - and _");
        return Err(Refusal::Invalid { field: "name".into(), problem }.into());
    }
    if ledgers(checkout)?.ledgers.iter().any(|ledger| ledger.name == name) {
        return Err(Refusal::Exists { what: "ledger", name: name.into() }.into());
    }
    let dir = fs::canonicalize(dir).map_err(io("find", dir))?;
    refuse_inside(checkout, &dir)?;
    let also = Also { name: name.into(), place: Place::Shared, dir, read_only };
    know(&checkout.state_dir(), |known| {
        known.also.push(also);
        Ok(())
    })
}

/// Lets a checkout no longer see a ledger, which stays as it is.
pub(crate) fn remove(checkout: &Checkout, name: &str) -> Result<(), Error> {
    know(&checkout.state_dir(), |known| {
        let before = known.also.len();
        known.also.retain(|also| also.name != name);
        match known.also.len() == before {
            true => Err(Refusal::NotFound { what: "ledger", text: name.into() }.into()),
            false => Ok(()),
        }
    })
}

/// How somebody plans in private.
#[derive(Clone, Debug, Default)]
pub struct Private {
    /// The repository that private plans are in, of whatever kind; absent, one of toft's own.
    pub dir: Option<PathBuf>,
    /// The remote that keeps the project's own ledger; absent, `upstream` if there is one.
    pub upstream: Option<String>,
}

impl Private {
    /// From now on new issues go to a private ledger, which has a part for each project. Gives where that is.
    pub(crate) fn begin(&self, checkout: &Checkout, repository: &str) -> Result<PathBuf, Error> {
        let remotes = remotes(checkout)?;
        if let Some(named) = self.upstream.as_ref().filter(|named| !remotes.contains(named)) {
            return Err(Refusal::NotFound { what: "remote", text: named.clone() }.into());
        }
        let upstream = self.upstream.clone().or_else(|| remotes.into_iter().find(|name| name == UPSTREAM));
        let home = match &self.dir {
            Some(dir) => std::path::absolute(dir).map_err(io("find", dir))?,
            None => data_home().join("planning"),
        };
        private::create_dir_all(&home).map_err(io("make", &home))?;
        refuse_inside(checkout, &home)?;
        // Every clone of a project has the same first commit, so that its part is the same wherever it is planned,
        // whatever the clone is called.
        let print = match exchange::fingerprint(checkout)? {
            Some(Fingerprint::Commit(commit)) => commit,
            Some(Fingerprint::Address(address)) => blake3::hash(address.as_bytes()).to_hex().to_string(),
            None => repository.to_owned(),
        };
        let print = &print[..print.len().min(10)];
        let entries = fs::read_dir(&home).map_err(io("read", &home))?.flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let known = names.find(|name| name.ends_with(&format!("-{print}")));
        let part = home.join(known.unwrap_or_else(|| format!("{}-{print}", checkout.name())));
        private::create_dir_all(&part).map_err(io("make", &part))?;
        if self.dir.is_none() {
            exchange::make_repository(&home)?;
        }
        let dir = fs::canonicalize(&part).map_err(io("find", &part))?;
        let mut place = dir.clone();
        know(&checkout.state_dir(), |known| {
            known.contributor = true;
            known.upstream = upstream;
            let name = Place::Planning.as_str().to_owned();
            match known.also.iter_mut().find(|also| also.place == Place::Planning) {
                // Plans that were begun elsewhere stay in sight unless somebody says where they are now.
                Some(also) if self.dir.is_none() => place.clone_from(&also.dir),
                Some(also) => also.dir = dir,
                None => known.also.push(Also { name, place: Place::Planning, dir, read_only: false }),
            }
            Ok(())
        })?;
        Ok(place)
    }
}

/// A ledger inside of a project's own repository would be published with it.
fn refuse_inside(checkout: &Checkout, dir: &Path) -> Result<(), Error> {
    match toft_vcs::find(dir)? {
        Some(around) if around.common_dir == checkout.common_dir && checkout.vcs != Vcs::None => {
            let problem =
                format!("{} is in this very project; such a ledger needs a place outside of it", dir.display());
            Err(Refusal::Invalid { field: "ledger".into(), problem }.into())
        }
        _ => Ok(()),
    }
}

/// What a fork calls the project it was made of.
const UPSTREAM: &str = "upstream";

/// From now on new issues go to the repository's own ledger; private plans stay in sight.
pub(crate) fn plan_in_public(checkout: &Checkout) -> Result<(), Error> {
    know(&checkout.state_dir(), |known| {
        (known.contributor, known.upstream) = (false, None);
        Ok(())
    })
}

fn remotes(checkout: &Checkout) -> Result<Vec<String>, Error> {
    Ok(exchange::remotes(checkout)?)
}

/// Whether a remote is known to have issues that were never brought here.
pub fn waiting(checkout: &Checkout) -> Result<bool, Error> {
    Ok(!checkout.state_dir().join("ledger").exists() && exchange::ledger_seen(checkout)?)
}

/// Whether the remotes look as if somebody contributes here to what others keep, and nobody has said so yet.
pub fn hint(checkout: &Checkout) -> Result<bool, Error> {
    Ok(!known(&checkout.state_dir())?.contributor && remotes(checkout)?.iter().any(|name| name == UPSTREAM))
}

/// Puts an empty ledger into the working tree, unless one is there.
pub(crate) fn make_tree_ledger(checkout: &Checkout) -> Result<(), Error> {
    let dir = checkout.root.join(IN_TREE);
    fs::create_dir_all(&dir).map_err(io("make", &dir))?;
    let path = dir.join(ISSUES);
    fs::OpenOptions::new().create(true).append(true).open(&path).map_err(io("make", &path))?;
    // git need not ask anybody about two lines at one place.
    let attributes = dir.join(".gitattributes");
    match checkout.vcs {
        Vcs::Git | Vcs::Jj if !attributes.exists() => {
            fs::write(&attributes, "*.jsonl merge=union\n").map_err(io("write", &attributes))
        }
        _ => Ok(()),
    }
}

/// Is there room to write in a directory?
#[cfg(unix)]
fn check_room(dir: &Path) -> std::io::Result<()> {
    match nix::sys::statvfs::statvfs(dir) {
        // Some file systems do not count.
        Ok(seen) if seen.blocks() == 0 => Ok(()),
        // Room for some lines: a block has 4 KiB on most file systems.
        Ok(seen) if seen.blocks_available() < 16 => Err(std::io::ErrorKind::StorageFull.into()),
        // Whatever cannot be asked is found out when it is written.
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_room(_dir: &Path) -> std::io::Result<()> {
    Ok(())
}

/// This clone's name in clocks, made once.
pub(super) fn replica(state: &Path) -> Result<Replica, Error> {
    let path = state.join("replica");
    let read = || fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    if let Some(known) = read() {
        return Ok(known);
    }
    let name = random_mint().word()[..6].to_owned();
    let draft = state.join(format!("replica.{name}"));
    private::create_dir_all(state).map_err(io("make", state))?;
    private::write(&draft, format!("{name}\n")).map_err(io("write", &draft))?;
    // Two that make it at once agree on the first.
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft).map_err(io("tidy", &draft))?;
    match read() {
        Some(known) => Ok(known),
        None => Err(Error::Io {
            doing: "read",
            path,
            cause: linked.err().unwrap_or_else(|| std::io::Error::other("it is empty")),
        }),
    }
}

impl Toft {
    fn checkout(&self) -> Result<&Checkout, Error> {
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        self.located().checkout.as_ref().ok_or_else(nowhere)
    }

    /// Keeps issues in the working tree from now on, where they are reviewed and committed like code.
    pub fn keep_issues_in_tree(&self) -> Result<(), Error> {
        make_tree_ledger(self.checkout()?)
    }

    /// From now on new issues go to a private ledger, of which the repository sees nothing. Gives where it is.
    pub fn plan_in_private(&self, how: &Private) -> Result<PathBuf, Error> {
        let repository = self.located().repository.as_ref().map(ToString::to_string).unwrap_or_default();
        how.begin(self.checkout()?, &repository)
    }

    /// From now on new issues go to the repository's own ledger again.
    pub fn plan_in_public(&self) -> Result<(), Error> {
        plan_in_public(self.checkout()?)
    }

    /// Lets this clone see another ledger.
    pub fn add_ledger(&self, name: &str, dir: &Path, read_only: bool) -> Result<(), Error> {
        add(self.checkout()?, name, dir, read_only)
    }

    /// Lets this clone no longer see a ledger, which stays as it is.
    pub fn remove_ledger(&self, name: &str) -> Result<(), Error> {
        remove(self.checkout()?, name)
    }

    /// Issues as this checkout sees them; `None` outside of one.
    pub fn plan(&self) -> Result<Option<super::Plan<'_>>, Error> {
        super::Plan::open(self)
    }
}
