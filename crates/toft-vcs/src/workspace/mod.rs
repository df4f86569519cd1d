//! Workspaces on disk: create, examine, rescue, restore and remove them.
//!
//! The callers decide which of these operations is allowed. Nothing here deletes content that exists nowhere else
//! before a rescue of it was written and verified. Start at [`WorkspaceBackend`].

mod access;
mod base;
mod broken;
mod git;
mod hg;
mod holders;
mod jj;
mod kept;
mod landed;
mod look;
mod mount;
mod moved;
mod overlay;
mod probe;
mod remove;
mod rescue;
mod rescue_content;
mod restore;
mod snapshot;
mod survey;
mod system;
mod times;
mod trial_merge;
mod walk;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use thiserror::Error;
use toft_core::{
    time::Timestamp,
    workspace::{Left, Survey, Workspace, WorkspaceKind},
};

use self::system::WorkspaceSystem;
pub use self::{
    broken::{WorkspaceTrouble, quoted},
    holders::{holders, process_in},
    look::{Look, Refs},
    probe::{Probed, Sharing},
    remove::{Removal, Removed},
    rescue::{Rescue, Rescued},
    snapshot::behind_link,
    times::set_modified,
};
use crate::{Checkout, FindError, Vcs, command::RunError, git_run::Git, git_view::GitView, lock};

/// The lock for changes of a repository's list of worktrees.
const LIST: &str = "worktrees";

/// Why an operation on a workspace failed.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// A program failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A file could not be read or written.
    #[error("could not {doing} {path}: {cause}", path = path.display())]
    Io {
        /// The attempted operation.
        doing: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// A directory that looks like a checkout cannot be used.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Another process has held the lock for too long.
    #[error("another process is using `{what}`")]
    Busy { what: String },
    /// A process uses the workspace.
    #[error("process {} is in {path}, or has a file open there", .pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), path = path.display())]
    InUse { pids: Vec<u32>, path: PathBuf },
    /// The path already exists.
    #[error("{path} already exists", path = path.display())]
    PathTaken { path: PathBuf },
    /// The path is inside a repository.
    #[error("{path} is inside the repository {repository}", path = path.display(), repository = repository.display())]
    Inside {
        /// The path of the new workspace.
        path: PathBuf,
        repository: PathBuf,
    },
    /// The commit to start from does not exist.
    #[error("there is no commit `{text}` to start from")]
    NoBase {
        /// The revision as given.
        text: String,
    },
    /// The name is not valid for a branch.
    #[error("`{text}` is not a valid branch name")]
    BadName {
        /// The name as given.
        text: String,
    },
    /// The branch is checked out in another worktree.
    #[error("the branch {branch} is checked out elsewhere")]
    BranchTaken { branch: String },
    /// The workspace has no such rescue.
    #[error("{}", match known.as_slice() { [] => format!("nothing of {name} was put away"), known => format!("no such rescue; {name} has {}", known.join(", ")) })]
    NoRescue {
        /// The workspace's name.
        name: String,
        /// The rescues that exist.
        known: Vec<String>,
    },
    /// The version control system does not support the operation.
    #[error("{what} is not supported under {vcs}")]
    NotFor { what: &'static str, vcs: &'static str },
    /// The workspace cannot be removed without losing content.
    #[error("it stays: {why}")]
    Stays { why: String },
    /// The workspace would be incomplete, or cannot be mounted.
    #[error("{why}")]
    NotWhole {
        why: String,
        /// The next step for the user.
        next: String,
    },
    /// The rescue differs from the workspace's content.
    #[error("the rescue differs from {path}: {what}", path = path.display())]
    Unverified {
        path: PathBuf,
        /// The difference.
        what: String,
    },
}

/// The commit to start a workspace from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub commit: String,
    /// The branch by which it was named, on which the work is to land.
    pub onto: Option<String>,
}

/// The newest commit of a checkout, and its uncommitted changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    pub commit: String,
    /// Number of files with uncommitted changes.
    pub uncommitted: usize,
}

/// A workspace that was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Notes for the user about content that is missing, such as submodules.
    pub notes: Vec<String>,
}

/// The operations on the workspaces of one repository.
pub struct WorkspaceBackend {
    vcs: Vcs,
    root: PathBuf,
    common_dir: PathBuf,
    state: PathBuf,
    git: OnceLock<Git>,
    view: OnceLock<Arc<GitView>>,
}

impl WorkspaceBackend {
    /// The backend for the repository of a checkout.
    pub fn of(checkout: &Checkout) -> Self {
        Self {
            vcs: checkout.vcs,
            root: checkout.root.clone(),
            common_dir: checkout.common_dir.clone(),
            state: checkout.state_dir(),
            git: OnceLock::new(),
            view: OnceLock::new(),
        }
    }

    /// The implementation for the repository's version control system.
    fn system(&self) -> &'static dyn WorkspaceSystem {
        system::of(self.vcs)
    }

    /// Git on the repository itself.
    fn git(&self) -> Result<&Git, WorkspaceError> {
        if self.git.get().is_none() {
            let git = Git::of(&self.common_dir)?;
            self.git.get_or_init(|| git);
        }
        self.git.get().ok_or_else(|| self.not_for("git"))
    }

    /// The path of a marker file that records the progress of an operation on a workspace. Agents cannot write there.
    fn mark(&self, workspace: &Workspace, name: &str) -> PathBuf {
        self.state.join("marks").join(format!("{}.{name}", workspace.id))
    }

    fn set_mark(&self, workspace: &Workspace, name: &str) -> Result<(), WorkspaceError> {
        let mark = self.mark(workspace, name);
        let made = crate::private::create_dir_all(&self.state.join("marks"));
        let made = made.and_then(|()| crate::private::options().truncate(true).open(&mark));
        made.map(drop).map_err(lock::io("write", &mark))
    }

    fn clear_mark(&self, workspace: &Workspace, name: &str) -> Result<(), WorkspaceError> {
        let mark = self.mark(workspace, name);
        match fs::remove_file(&mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(lock::io("remove", &mark)),
        }
    }

    /// Waits for the lock on a workspace: only one process at a time may create, rescue or remove it.
    pub fn turn(&self, workspace: &Workspace) -> Result<lock::RepoLock, WorkspaceError> {
        lock::RepoLock::wait(&self.state, workspace.id.as_str())
    }

    /// Takes the lock on a workspace if it is free.
    pub fn free_turn(&self, workspace: &Workspace) -> Result<Option<lock::RepoLock>, WorkspaceError> {
        lock::RepoLock::attempt(&self.state, workspace.id.as_str())
    }

    /// The temporary paths of a workspace while it is created or removed.
    pub fn on_its_way(workspace: &Workspace) -> [PathBuf; 3] {
        let (aside, gone) = remove::aside(workspace);
        [aside, gone, remove::building(workspace)]
    }

    /// The branch that is checked out in a directory.
    pub fn branch_at(&self, dir: &Path) -> Result<Option<String>, WorkspaceError> {
        self.system().branch_at(self, dir)
    }

    /// The commit that `rev` names, or the main checkout's commit.
    pub fn start(&self, rev: Option<&str>) -> Result<Start, WorkspaceError> {
        self.system().start(self, rev)
    }

    /// Whether a branch of that name exists.
    pub fn has_branch(&self, name: &str) -> Result<bool, WorkspaceError> {
        self.system().has_branch(self, name)
    }

    /// Whether workspaces have branches under this version control system.
    pub fn has_branches(&self) -> bool {
        self.system().has_branches()
    }

    /// The error for an operation that this version control system does not support.
    pub fn not_for(&self, what: &'static str) -> WorkspaceError {
        WorkspaceError::NotFor { what, vcs: self.vcs.as_str() }
    }

    /// Creates the workspace's directory. With `copy_of`, its files are copied from that base. A failure leaves nothing
    /// behind.
    pub fn provide(&self, workspace: &Workspace, copy_of: Option<&str>) -> Result<Made, WorkspaceError> {
        let path = Path::new(&workspace.path);
        self.clear_ground(path)?;
        if workspace.kind == WorkspaceKind::InPlace {
            return Ok(Made::default());
        }
        let made = self.system().make(self, workspace, copy_of);
        if made.is_err() {
            // No caller has the workspace yet, and the error explains the failure.
            let _ = self.system().clear_away(self, workspace);
        }
        made
    }

    /// Records that the workspaces in `dir` belong to this repository.
    pub fn keeps_workspaces_in(&self, dir: &Path) -> Result<(), WorkspaceError> {
        crate::private::create_dir_all(dir).map_err(lock::io("make", dir))?;
        crate::recorded::note(dir, &self.common_dir).map_err(lock::io("write", dir))
    }

    /// Turns a workspace that was prepared in advance into the requested one, if it was not changed since. An artefact
    /// that is newer than `made` counts as a change.
    pub fn take_over(&self, workspace: &Workspace, made: SystemTime) -> Result<Made, WorkspaceError> {
        self.open(workspace)?;
        git::take_over(self, workspace, made)
    }

    /// Deletes ignored directories that tools can rebuild and returns them. Directories that contain a repository are
    /// kept.
    pub fn shed(&self, workspace: &Workspace) -> Result<Vec<Left>, WorkspaceError> {
        self.system().shed(self, workspace)
    }

    /// The commit that a revision names in a checkout; for version control systems other than git, the revision itself.
    pub fn commit_at(&self, dir: &Path, rev: &str) -> Result<Option<String>, WorkspaceError> {
        self.system().commit_at(self, dir, rev)
    }

    /// The commit that a revision names in a checkout, with its own timestamp; `None` if it does not exist.
    pub fn commit_made(&self, dir: &Path, rev: &str) -> Result<Option<(String, Timestamp)>, WorkspaceError> {
        // Accept names only: a revision must not be an expression of the version control system's query language.
        if rev.starts_with('-') || !rev.chars().all(|letter| letter.is_alphanumeric() || "@~^._/-".contains(letter)) {
            return Ok(None);
        }
        let said = self.system().commit_made(self, dir, rev)?;
        let Some(said) = said else { return Ok(None) };
        let mut words = said.split_whitespace();
        let (commit, seconds) =
            (words.next().map(str::to_owned), words.next().and_then(|word| word.parse::<i64>().ok()));
        Ok(commit.zip(seconds).map(|(commit, seconds)| (commit, Timestamp(seconds.saturating_mul(1_000)))))
    }

    /// The commit to start from so that the work in `needs` is included: the newest of these commits that is ahead of
    /// `start`, and notes about the others.
    pub fn stack(&self, start: String, needs: &[String]) -> Result<(String, Vec<String>), WorkspaceError> {
        self.system().stack(self, start, needs)
    }

    /// The newest commit of a workspace, and the number of files with uncommitted changes.
    pub fn stand(&self, workspace: &Workspace) -> Result<Stand, WorkspaceError> {
        self.system().stand(self, workspace)
    }

    /// Tracked files that are changed and not committed; for version control systems other than git, which commit everything,
    /// none.
    pub fn modified(&self, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
        match self.vcs {
            Vcs::Git => git::modified(self, workspace),
            _ => Ok(Vec::new()),
        }
    }

    /// The commit that is checked out, read from git's files if possible.
    pub fn head(&self, workspace: &Workspace) -> Result<String, WorkspaceError> {
        let plain = self.system().head_in_files(self, workspace);
        plain.map_or_else(|| Ok(self.stand(workspace)?.commit), Ok)
    }

    /// Whether a commit contains work that was done in this workspace since `before` and that no other branch has.
    pub fn is_own(&self, workspace: &Workspace, before: &str, commit: &str) -> Result<bool, WorkspaceError> {
        self.system().is_own(self, workspace, before, commit)
    }

    /// Deletes git lock files that a killed process left in this workspace before the time `before`, and returns their
    /// names. Does nothing while a process uses the workspace.
    pub fn clear_locks(&self, workspace: &Workspace, before: SystemTime) -> Result<Vec<String>, WorkspaceError> {
        match process_in(Path::new(&workspace.path)) {
            Some(_) => Ok(Vec::new()),
            None => self.system().clear_locks(self, workspace, before),
        }
    }

    /// The commit that is checked out in a workspace that was just created.
    pub fn begun_at(&self, workspace: &Workspace) -> Result<String, WorkspaceError> {
        self.system().begun_at(self, workspace)
    }

    /// Removes an incomplete workspace that no caller has received. A directory that does not belong to this repository
    /// is left alone.
    pub fn clear_begun(&self, workspace: &Workspace) -> Result<Removed, WorkspaceError> {
        let path = Path::new(&workspace.path);
        // The interrupted command may have left a program running, which holds its lock until it ends.
        drop(lock::RepoLock::wait(&self.state, LIST)?);
        overlay::ensure(self, workspace)?;
        remove::tree(&remove::building(workspace))?;
        remove::unfilled(path)?;
        if remove::exists(path)? && fs::remove_dir(path).is_err() && !self.is_here(workspace, path) {
            return Err(WorkspaceError::PathTaken { path: path.to_owned() });
        }
        self.remove(workspace, Removal { rescue: true, ignored: false }, |_| Ok(()))
    }

    /// Whether the directory at `dir` is this workspace, and not something that replaced it.
    pub fn is_here(&self, workspace: &Workspace, dir: &Path) -> bool {
        self.system().is_here(self, workspace, dir)
    }

    /// Examines the workspace's content.
    pub fn survey(&self, workspace: &Workspace) -> Result<Survey, WorkspaceError> {
        self.open(workspace)?;
        self.survey_at(workspace, Path::new(&workspace.path))
    }

    fn survey_at(&self, workspace: &Workspace, dir: &Path) -> Result<Survey, WorkspaceError> {
        self.system().survey(self, workspace, dir)
    }

    /// Removes the workspace after a rescue of content that exists nowhere else. Can be interrupted at any point and
    /// repeated. Before anything is deleted, `put_away` receives the rescue and the list of files that it does not
    /// contain.
    pub fn remove(
        &self,
        workspace: &Workspace,
        may: Removal,
        put_away: impl FnOnce(&Removed) -> Result<(), WorkspaceError>,
    ) -> Result<Removed, WorkspaceError> {
        remove::remove(self, workspace, may, put_away)
    }

    /// Restores a workspace from a rescue: on a new branch if `branch` is given, otherwise on its former branch if that
    /// is free.
    pub fn restore(&self, workspace: &Workspace, rescue: &str, branch: Option<&str>) -> Result<Made, WorkspaceError> {
        self.clear_ground(Path::new(&workspace.path))?;
        self.system().restore(self, workspace, rescue, branch)
    }

    /// Checks that a path is free and in no checkout of this repository, and creates its parent directory. Another
    /// repository around it, such as a home directory under version control, does not matter: see [`crate::recorded`].
    fn clear_ground(&self, path: &Path) -> Result<(), WorkspaceError> {
        let parent = path.parent().unwrap_or(path);
        if let Some(there) = parent.ancestors().find(|dir| dir.is_dir())
            && let Some(around) = crate::find(there)?.filter(|around| around.common_dir == self.common_dir)
        {
            return Err(WorkspaceError::Inside { path: path.to_owned(), repository: around.root });
        }
        if remove::exists(path)? {
            return Err(WorkspaceError::PathTaken { path: path.to_owned() });
        }
        crate::private::create_dir_all(parent).map_err(lock::io("make", parent))
    }
}
