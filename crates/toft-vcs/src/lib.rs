//! Finds the repository and worktree that a directory belongs to, for git, Jujutsu, Mercurial, Sapling and directories
//! without version control, and manages the workspaces of a repository.
//!
//! [`find`] reads the files of the version control system and starts no process, so every command can afford it.
//! [`workspace`] runs the programs themselves.

#[cfg(not(unix))]
compile_error!("toft runs on Unix (Linux, macOS, the BSDs); on Windows, use WSL");

pub mod clone;
mod command;
pub mod exchange;
mod git;
mod git_run;
mod git_view;
mod hg;
mod identity;
mod jj;
pub mod landing;
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
/// File in [`PLAIN_DIR`], or beside a store, that contains the repository's id.
pub const ID_FILE: &str = "repository";

/// The name of a repository's main checkout.
pub const MAIN: &str = "main";

/// File in a linked checkout's private directory that contains toft's name for it.
const MARK: &str = "toft-worktree";
/// Separates the number in the name of a checkout that was created again under an old name.
pub const AGAIN: char = '~';

/// A version control system.
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
    /// The name shown to users.
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

/// A checkout of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkout {
    pub vcs: Vcs,
    /// Top directory of the checkout; for a bare repository, the repository itself.
    pub root: PathBuf,
    /// The directory that all checkouts of the repository share.
    pub common_dir: PathBuf,
    /// The name of this checkout in the version control system; `main` for the main one. A checkout that was created
    /// again under an old name has a number appended: see [`Checkout::mark`].
    pub worktree: String,
    /// The state directory, if it is not the default one: toft was set up here before there was version control.
    pub state: Option<PathBuf>,
}

impl Checkout {
    /// toft's state directory of the repository. It is never among the files of a worktree.
    pub fn state_dir(&self) -> PathBuf {
        match (&self.state, self.vcs) {
            (Some(state), _) => state.clone(),
            (None, Vcs::None) => self.common_dir.clone(),
            (None, _) => self.common_dir.join("toft"),
        }
    }

    /// The root of the repository's main checkout; of this checkout if there is no other.
    pub fn main_root(&self) -> PathBuf {
        let common = &self.common_dir;
        let root = match common.file_name().and_then(|name| name.to_str()) {
            Some(".git" | ".hg" | ".sl") => common.parent(),
            Some("repo") => common.parent().and_then(Path::parent),
            _ => None,
        };
        root.map_or_else(|| self.root.clone(), Path::to_owned)
    }

    /// The version control system's private directory of a linked checkout, and a file in it that is as old as the
    /// checkout.
    fn private(&self) -> Option<(PathBuf, &'static str)> {
        let (own, oldest) = match self.vcs {
            Vcs::Git if self.common_dir == self.root.join(".git") => return None,
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

    /// The creation time of a linked checkout that has no recorded name yet.
    pub fn unsettled(&self) -> Option<std::time::SystemTime> {
        let (own, oldest) = self.private()?;
        match own.join(MARK).exists() {
            true => None,
            false => fs::metadata(own.join(oldest)).ok()?.modified().ok(),
        }
    }

    /// Records the name of a linked checkout, which it keeps for as long as it exists.
    pub fn mark(&self, name: &str) -> std::io::Result<()> {
        match self.private() {
            Some((own, _)) => {
                private::options().truncate(true).open(own.join(MARK))?.write_all(format!("{name}\n").as_bytes())
            }
            None => Ok(()),
        }
    }

    /// The same checkout under its recorded name.
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

    /// The repository's name for display.
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

/// Why a directory that looks like a checkout cannot be used.
#[derive(Debug, Error)]
pub enum FindError {
    /// A worktree inside another checkout whose `.git` file is missing.
    #[error("{path} is the worktree `{name}`, and its .git file is gone", path = path.display())]
    Emptied {
        /// The worktree's name.
        name: String,
        path: PathBuf,
    },
    /// A workspace that claims to belong to a repository other than the one it was created from, or to none.
    #[error("{path} is a workspace of {repository}, and no longer says so", path = path.display(), repository = repository.display())]
    Changed {
        path: PathBuf,
        /// The repository that it was created from.
        repository: PathBuf,
    },
    /// A link to a path that does not exist.
    #[error("{link} points to {target}, which is not there", link = link.display(), target = target.display())]
    Dangling {
        /// The file that contains the link.
        link: PathBuf,
        target: PathBuf,
    },
    /// A file that could not be read.
    #[error("could not read {path}: {cause}", path = path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
}

/// The nearest checkout at or above `start`. Symbolic links are resolved first.
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

/// The text of a small file without its trailing line break; `None` if the file does not exist. A pipe, which may never
/// end, is refused.
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

/// The directory that the content of `link` names, relative to `base`.
fn follow(link: &Path, base: &Path, text: &str) -> Result<PathBuf, FindError> {
    let target = base.join(text);
    fs::canonicalize(&target).map_err(|_| FindError::Dangling { link: link.to_owned(), target })
}
