//! Which repository and worktree a directory belongs to, for git, Jujutsu, Mercurial, Sapling, and none; and workspaces
//! made of a repository.
//!
//! [`find`] reads the files each VCS keeps and starts no process, so that every command can afford it. [`workspace`]
//! asks the programs themselves.

#[cfg(not(unix))]
compile_error!("toft runs on Unix (Linux, macOS, the BSDs); on Windows, use WSL");

mod command;
pub mod exchange;
mod git;
mod git_run;
mod git_view;
mod hg;
mod identity;
mod jj;
mod lock;
mod plain;
mod private;
mod recorded;
mod stalled;
pub mod workspace;

pub use command::{RunError, shell};
pub use identity::{Identity, identity};
pub use lock::RepoLock;

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// The directory that marks a repository without a VCS.
pub const PLAIN_DIR: &str = ".toft";
/// In [`PLAIN_DIR`] or beside a store: holds the repository's id.
pub const ID_FILE: &str = "repository";

/// The name of a repository's main checkout.
pub const MAIN: &str = "main";

/// In a linked checkout's own directory: the name that toft knows it by.
const MARK: &str = "toft-worktree";
/// Stands before the number of a checkout that was made again under an old name.
pub const AGAIN: char = '~';

/// A kind of version control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vcs {
    /// Git.
    Git,
    /// Jujutsu.
    Jj,
    /// Mercurial.
    Hg,
    /// Sapling.
    Sl,
    /// None: a directory marked by `toft init --no-vcs`.
    None,
}

impl Vcs {
    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Jj => "jj",
            Self::Hg => "hg",
            Self::Sl => "sl",
            Self::None => "none",
        }
    }
}

/// One checkout of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    /// Under which VCS.
    pub vcs: Vcs,
    /// Top of the checkout; of a bare repository, the repository itself.
    pub root: PathBuf,
    /// What all checkouts of the repository share.
    pub common_dir: PathBuf,
    /// The VCS's own name for this checkout; `main` for the main one. One that was made again under an old name has a
    /// number after it: see [`Checkout::mark`].
    pub worktree: String,
    /// Where toft keeps what belongs to the repository, if that is not the usual place: it was set up before there was
    /// version control.
    pub state: Option<PathBuf>,
}

impl Checkout {
    /// Where toft keeps what belongs to the repository: never inside a worktree's files.
    pub fn state_dir(&self) -> PathBuf {
        match (&self.state, self.vcs) {
            (Some(state), _) => state.clone(),
            (None, Vcs::None) => self.common_dir.clone(),
            (None, _) => self.common_dir.join("toft"),
        }
    }

    /// The root of the repository's main checkout; of this one if there is no other.
    pub fn main_root(&self) -> PathBuf {
        let common = &self.common_dir;
        let root = match common.file_name().and_then(|name| name.to_str()) {
            Some(".git" | ".hg" | ".sl") => common.parent(),
            Some("repo") => common.parent().and_then(Path::parent),
            _ => None,
        };
        root.map_or_else(|| self.root.clone(), Path::to_owned)
    }

    /// The VCS's own directory for this checkout alone, and a file in it that is as old as the checkout.
    fn private(&self) -> Option<(PathBuf, &'static str)> {
        let (own, oldest) = match self.vcs {
            Vcs::Git => {
                let text = read(&self.root.join(".git")).ok()??;
                (self.root.join(text.strip_prefix("gitdir: ")?), "commondir")
            }
            Vcs::Jj => (self.root.join(".jj"), "repo"),
            Vcs::Hg => (self.root.join(".hg"), "sharedpath"),
            Vcs::Sl => (self.root.join(".sl"), "sharedpath"),
            Vcs::None => return None,
        };
        own.join(oldest).is_file().then_some((own, oldest))
    }

    /// When a linked checkout was made, unless its name is settled already.
    pub fn unsettled(&self) -> Option<std::time::SystemTime> {
        let (own, oldest) = self.private()?;
        match own.join(MARK).exists() {
            true => None,
            false => fs::metadata(own.join(oldest)).ok()?.modified().ok(),
        }
    }

    /// Settles the name of a linked checkout for as long as it exists.
    pub fn mark(&self, name: &str) -> std::io::Result<()> {
        match self.private() {
            Some((own, _)) => {
                private::options().truncate(true).open(own.join(MARK))?.write_all(format!("{name}\n").as_bytes())
            }
            None => Ok(()),
        }
    }

    /// The same checkout under the name that was settled for it.
    fn under_its_mark(mut self) -> Result<Self, FindError> {
        if self.worktree != MAIN
            && let Some((own, _)) = self.private()
            && let Some(name) = read(&own.join(MARK))?
        {
            let number = name.strip_prefix(&self.worktree).and_then(|rest| rest.strip_prefix(AGAIN));
            if number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())) {
                self.worktree = name;
            }
        }
        Ok(self)
    }

    /// What people call the repository.
    pub fn name(&self) -> String {
        let dir = match self.common_dir.file_name().and_then(|name| name.to_str()) {
            Some(".git" | ".hg" | ".sl" | PLAIN_DIR) => self.common_dir.parent(),
            Some("repo") => self.common_dir.parent().and_then(Path::parent),
            _ => Some(self.common_dir.as_path()),
        };
        let name = dir.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        name.map(|name| name.trim_end_matches(".git").to_owned()).unwrap_or_else(|| "repository".into())
    }
}

/// A directory that claims to be a checkout and is not.
#[derive(Debug, Error)]
pub enum FindError {
    /// A worktree whose own link to its repository is gone, inside another checkout.
    #[error("{path} is the worktree `{name}`, and its .git file is gone", path = path.display())]
    Emptied {
        /// The worktree's name.
        name: String,
        path: PathBuf,
    },
    /// A workspace that says that it belongs to another repository than it was made of, or to none.
    #[error("{path} is a workspace of {repository}, and no longer says so", path = path.display(), repository = repository.display())]
    Changed {
        path: PathBuf,
        /// The repository that it was made of.
        repository: PathBuf,
    },
    /// A link that leads nowhere.
    #[error("{link} points to {target}, which is not there", link = link.display(), target = target.display())]
    Dangling {
        /// The file with the link.
        link: PathBuf,
        /// Where it points.
        target: PathBuf,
    },
    /// A file that could not be read.
    #[error("could not read {path}: {cause}", path = path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
}

/// The checkout that `start` is in: the nearest one, going up. Symbolic links are resolved first.
pub fn find(start: &Path) -> Result<Option<Checkout>, FindError> {
    let start = fs::canonicalize(start).map_err(|cause| FindError::Unreadable { path: start.to_owned(), cause })?;
    for dir in start.ancestors() {
        let found = at(dir)?;
        recorded::check(dir, found.as_ref())?;
        if let Some(checkout) = found {
            if checkout.vcs == Vcs::Git && dir != start {
                git::refuse_emptied(&checkout, &start)?;
            }
            return Ok(Some(checkout.under_its_mark()?));
        }
    }
    Ok(None)
}

fn at(dir: &Path) -> Result<Option<Checkout>, FindError> {
    if let Some(found) = jj::at(dir)? {
        return Ok(Some(found));
    }
    if let Some(found) = git::at(dir)? {
        return Ok(Some(found));
    }
    for (vcs, name) in [(Vcs::Hg, ".hg"), (Vcs::Sl, ".sl")] {
        if let Some(found) = hg::at(dir, vcs, name)? {
            return Ok(Some(found));
        }
    }
    let marked = dir.join(PLAIN_DIR);
    Ok(marked.join(ID_FILE).is_file().then(|| Checkout {
        vcs: Vcs::None,
        root: dir.to_owned(),
        common_dir: marked,
        worktree: MAIN.into(),
        state: None,
    }))
}

/// The text of a small file, without its last line break; nothing if it is not there. A pipe, which may never end, is refused.
fn read(path: &Path) -> Result<Option<String>, FindError> {
    let opened = fs::File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let text = opened.and_then(|mut file| match file.metadata()?.is_file() {
        true => {
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        }
        false => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not a file")),
    });
    match text {
        Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(None),
        Err(cause) => Err(FindError::Unreadable { path: path.to_owned(), cause }),
    }
}

/// The directory that the text of `link` names, relative to `base`.
fn follow(link: &Path, base: &Path, text: &str) -> Result<PathBuf, FindError> {
    let target = base.join(text);
    fs::canonicalize(&target).map_err(|_| FindError::Dangling { link: link.to_owned(), target })
}
