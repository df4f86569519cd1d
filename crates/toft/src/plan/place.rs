//! Where ledgers are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toft_ledger::clock::Replica;
use toft_vcs::{Checkout, Vcs};

use crate::{
    error::{Error, io},
    session::random_mint,
};

/// What kind of place a ledger is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Beside the repository: nothing in the working tree, one for all worktrees.
    Branch,
    /// In the working tree, under whatever VCS it has.
    Tree,
}

impl Place {
    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Tree => "tree",
        }
    }
}

/// One ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// What it is called.
    pub name: String,
    /// What kind of place it is in.
    pub place: Place,
    /// Its directory.
    pub dir: PathBuf,
    /// What its writers wait for each other at.
    pub(super) lock: PathBuf,
}

/// The directory in a working tree.
const IN_TREE: &str = ".toft";
pub(super) const ISSUES: &str = "issues.jsonl";
pub(super) const ARCHIVE: &str = "archive";

impl Ledger {
    fn new(place: Place, dir: PathBuf, state: &Path) -> Self {
        let name = place.as_str().to_owned();
        let lock = state.join("locks").join(format!("{name}.lock"));
        Self { name, place, dir, lock }
    }

    /// The file that is written to.
    pub fn issues(&self) -> PathBuf {
        self.dir.join(ISSUES)
    }

    /// Every file of it, by its name within the ledger; the one that is written to first.
    pub(super) fn files(&self) -> Result<Vec<String>, Error> {
        let mut files = vec![ISSUES.to_owned()];
        let archive = self.dir.join(ARCHIVE);
        let found = match fs::read_dir(&archive) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
            Err(cause) => return Err(Error::Io { doing: "read", path: archive, cause }),
        };
        for entry in found {
            let name = entry.map_err(io("read", &archive))?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".jsonl") {
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

/// The ledgers that a checkout sees.
pub(super) fn ledgers(checkout: &Checkout) -> Vec<Ledger> {
    let (state, tree) = (checkout.state_dir(), checkout.root.join(IN_TREE));
    let in_tree = !matches!(checkout.vcs, Vcs::Git | Vcs::Jj) || tree.join(ISSUES).exists();
    vec![match in_tree {
        true => Ledger::new(Place::Tree, tree, &state),
        false => Ledger::new(Place::Branch, state.join("ledger"), &state),
    }]
}

/// Puts an empty ledger into the working tree, unless one is there.
pub(crate) fn make_tree_ledger(checkout: &Checkout) -> Result<(), Error> {
    let dir = checkout.root.join(IN_TREE);
    fs::create_dir_all(&dir).map_err(io("make", &dir))?;
    let path = dir.join(ISSUES);
    fs::OpenOptions::new().create(true).append(true).open(&path).map_err(io("make", &path)).map(drop)
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
    fs::create_dir_all(state).map_err(io("make", state))?;
    fs::write(&draft, format!("{name}\n")).map_err(io("write", &draft))?;
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
