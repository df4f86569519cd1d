//! Workspaces on disk: make one, see what is in it, put everything in it away, bring it back, take it down.
//!
//! Which of these may happen when is decided elsewhere; nothing here removes a byte that was not put away and read
//! back. Start at [`WorkspaceBackend`].

mod access;
mod base;
mod broken;
mod collide;
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
    collide::{Conflict, InProgress},
    holders::{holders, process_in},
    look::{Look, Refs},
    probe::{Probed, Sharing},
    remove::{Removal, Removed},
    rescue::{Rescue, Rescued},
    snapshot::behind_link,
    times::set_modified,
};
use crate::{Checkout, FindError, Vcs, command::RunError, git_run::Git, git_view::GitView, lock};

/// The turn that whatever changes a repository's list of worktrees waits for.
const LIST: &str = "worktrees";

/// Why a workspace could not be made, looked at or taken down.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// A program failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A file could not be read or written.
    #[error("could not {doing} {path}: {cause}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    /// A directory that claims to be a checkout and is not.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Somebody else is at it, and has been for long.
    #[error("somebody else is at `{what}`")]
    Busy { what: String },
    /// Somebody is in it.
    #[error("process {} is in {path}, or has a file open there", .pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), path = path.display())]
    InUse { pids: Vec<u32>, path: PathBuf },
    /// Something is where it was to be.
    #[error("{path} is in the way", path = path.display())]
    InTheWay { path: PathBuf },
    /// It would be inside a repository.
    #[error("{path} is inside the repository {repository}", path = path.display(), repository = repository.display())]
    Inside {
        /// Where it was to be.
        path: PathBuf,
        repository: PathBuf,
    },
    /// There is nothing to start from.
    #[error("there is no commit `{text}` to start from")]
    NoBase {
        /// What was asked for.
        text: String,
    },
    /// A branch cannot be called that.
    #[error("a branch cannot be called `{text}`")]
    BadName {
        /// What was asked for.
        text: String,
    },
    /// Somebody has the branch.
    #[error("the branch {branch} is checked out elsewhere")]
    BranchTaken { branch: String },
    /// Nothing of it was put away under that name.
    #[error("{}", match known.as_slice() { [] => format!("nothing of {name} was put away"), known => format!("of {name} there are the rescues {}", known.join(", ")) })]
    NoRescue {
        /// Of which workspace.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// It is not done under this VCS.
    #[error("{what} is not done for {vcs}")]
    NotFor {
        what: &'static str,
        /// Under which.
        vcs: &'static str,
    },
    /// It holds what cannot be put away.
    #[error("it stays: {why}")]
    Stays { why: String },
    /// It cannot be handed out whole.
    #[error("{why}")]
    NotWhole {
        why: String,
        /// The command or step that helps.
        next: String,
    },
    /// What was put away is not what is there.
    #[error("what was put away is not what is in {path}: {what}", path = path.display())]
    Unverified {
        path: PathBuf,
        /// What differs.
        what: String,
    },
}

/// What to start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub commit: String,
    /// The branch it was named by: where the work is to land.
    pub onto: Option<String>,
}

/// Where a checkout stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    /// Its newest commit.
    pub commit: String,
    /// How many files are changed and not committed.
    pub uncommitted: usize,
}

/// A workspace that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// What is not in it as one might expect, and what to do about it.
    pub notes: Vec<String>,
}

/// A repository that workspaces are made of.
pub struct WorkspaceBackend {
    vcs: Vcs,
    root: PathBuf,
    common_dir: PathBuf,
    state: PathBuf,
    git: OnceLock<Git>,
    view: OnceLock<Arc<GitView>>,
}

impl WorkspaceBackend {
    /// The repository of a checkout.
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

    /// What its version control system does for workspaces.
    fn system(&self) -> &'static dyn WorkspaceSystem {
        system::of(self.vcs)
    }

    /// Git on the repository.
    fn git(&self) -> Result<&Git, WorkspaceError> {
        if self.git.get().is_none() {
            let git = Git::of(&self.common_dir)?;
            self.git.get_or_init(|| git);
        }
        self.git.get().ok_or_else(|| self.not_for("git"))
    }

    /// A small file that says how far work on a workspace has come. It is where no agent can write.
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

    /// Waits for a turn at a workspace: one process at a time makes it, puts it away or takes it down.
    pub fn turn(&self, workspace: &Workspace) -> Result<lock::RepoLock, WorkspaceError> {
        lock::RepoLock::wait(&self.state, workspace.id.as_str())
    }

    /// A turn at a workspace, if nobody has it.
    pub fn free_turn(&self, workspace: &Workspace) -> Result<Option<lock::RepoLock>, WorkspaceError> {
        lock::RepoLock::attempt(&self.state, workspace.id.as_str())
    }

    /// Where a workspace is while it is made or taken down.
    pub fn on_its_way(workspace: &Workspace) -> [PathBuf; 3] {
        let (aside, gone) = remove::aside(workspace);
        [aside, gone, remove::building(workspace)]
    }

    /// The branch that a checkout is on.
    pub fn branch_at(&self, dir: &Path) -> Result<Option<String>, WorkspaceError> {
        self.system().branch_at(self, dir)
    }

    /// The commit that `rev` names, or that the main checkout is on.
    pub fn start(&self, rev: Option<&str>) -> Result<Start, WorkspaceError> {
        self.system().start(self, rev)
    }

    /// Whether there is a branch of that name already.
    pub fn has_branch(&self, name: &str) -> Result<bool, WorkspaceError> {
        self.system().has_branch(self, name)
    }

    /// Whether a workspace of this kind has a branch of its own.
    pub fn has_branches(&self) -> bool {
        self.system().has_branches()
    }

    /// It is not done under this VCS.
    pub fn not_for(&self, what: &'static str) -> WorkspaceError {
        WorkspaceError::NotFor { what, vcs: self.vcs.as_str() }
    }

    /// Makes the directory, with copies of a frozen checkout if one is named. Nothing is left if that fails.
    pub fn provide(&self, workspace: &Workspace, copy_of: Option<&str>) -> Result<Made, WorkspaceError> {
        let path = Path::new(&workspace.path);
        self.clear_ground(path)?;
        if workspace.kind == WorkspaceKind::InPlace {
            return Ok(Made::default());
        }
        let made = self.system().make(self, workspace, copy_of);
        if made.is_err() {
            // Nobody was given it; what it was is in the error.
            let _ = self.system().clear_away(self, workspace);
        }
        made
    }

    /// Notes in a directory of workspaces that those in it are of this repository.
    pub fn keeps_workspaces_in(&self, dir: &Path) -> Result<(), WorkspaceError> {
        crate::private::create_dir_all(dir).map_err(lock::io("make", dir))?;
        crate::recorded::note(dir, &self.common_dir).map_err(lock::io("write", dir))
    }

    /// Turns a workspace that was made ahead into what is wanted, if it is still as it was made.
    /// Artefacts that are newer than `made` are not its own.
    pub fn take_over(&self, workspace: &Workspace, made: SystemTime) -> Result<Made, WorkspaceError> {
        self.open(workspace)?;
        git::take_over(self, workspace, made)
    }

    /// Removes ignored directories that tools build again; gives which. Those with a repository inside stay.
    pub fn shed(&self, workspace: &Workspace) -> Result<Vec<Left>, WorkspaceError> {
        self.system().shed(self, workspace)
    }

    /// The commit that a word stands for in a checkout; under another VCS than git, the word.
    pub fn commit_at(&self, dir: &Path, rev: &str) -> Result<Option<String>, WorkspaceError> {
        self.system().commit_at(self, dir, rev)
    }

    /// The commit that a word stands for in a checkout, and when it was made, by its own word; nothing if there is none.
    pub fn commit_made(&self, dir: &Path, rev: &str) -> Result<Option<(String, Timestamp)>, WorkspaceError> {
        // A name, never an expression in the language of a version control.
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

    /// What to start from so that what is needed is there: the newest of these commits that is ahead of `start`, and what to
    /// know about the others.
    pub fn stack(&self, start: String, needs: &[String]) -> Result<(String, Vec<String>), WorkspaceError> {
        self.system().stack(self, start, needs)
    }

    /// Where a checkout stands: its newest commit, and how many files are changed and not committed.
    pub fn stand(&self, workspace: &Workspace) -> Result<Stand, WorkspaceError> {
        self.system().stand(self, workspace)
    }

    /// The commit that a checkout stands on, from git's files where they tell.
    pub fn head(&self, workspace: &Workspace) -> Result<String, WorkspaceError> {
        let plain = self.system().head_in_files(self, workspace);
        plain.map_or_else(|| Ok(self.stand(workspace)?.commit), Ok)
    }

    /// Whether a workspace's commit holds something that was made there since `before`: nobody else's branch has it.
    pub fn is_own(&self, workspace: &Workspace, before: &str, commit: &str) -> Result<bool, WorkspaceError> {
        self.system().is_own(self, workspace, before, commit)
    }

    /// Removes locks of git that whoever worked here before left when they were killed, `before` this moment; gives which.
    /// Only those of this workspace alone, and only while nobody is in it.
    pub fn clear_locks(&self, workspace: &Workspace, before: SystemTime) -> Result<Vec<String>, WorkspaceError> {
        match process_in(Path::new(&workspace.path)) {
            Some(_) => Ok(Vec::new()),
            None => self.system().clear_locks(self, workspace, before),
        }
    }

    /// The commit that a workspace stands on which was just made.
    pub fn begun_at(&self, workspace: &Workspace) -> Result<String, WorkspaceError> {
        self.system().begun_at(self, workspace)
    }

    /// Takes away what somebody began to make and never handed over. What is not of this repository is left alone.
    pub fn clear_begun(&self, workspace: &Workspace) -> Result<Removed, WorkspaceError> {
        let path = Path::new(&workspace.path);
        // Whoever began may have left a program behind that goes on; it keeps its turn until it ends.
        drop(lock::RepoLock::wait(&self.state, LIST)?);
        overlay::ensure(self, workspace)?;
        remove::tree(&remove::building(workspace))?;
        remove::unfilled(path)?;
        if remove::exists(path)? && fs::remove_dir(path).is_err() && !self.is_here(workspace, path) {
            return Err(WorkspaceError::InTheWay { path: path.to_owned() });
        }
        self.remove(workspace, Removal { rescue: true, ignored: false }, |_| Ok(()))
    }

    /// Whether what is at `dir` is this workspace, and nothing that somebody put in its place.
    pub fn is_here(&self, workspace: &Workspace, dir: &Path) -> bool {
        self.system().is_here(self, workspace, dir)
    }

    /// What is in it.
    pub fn survey(&self, workspace: &Workspace) -> Result<Survey, WorkspaceError> {
        self.open(workspace)?;
        self.survey_at(workspace, Path::new(&workspace.path))
    }

    fn survey_at(&self, workspace: &Workspace, dir: &Path) -> Result<Survey, WorkspaceError> {
        self.system().survey(self, workspace, dir)
    }

    /// Takes it down: what is only in it is put away first. Can be killed anywhere and run again.
    /// Before anything is deleted, `put_away` is told what holds it and what no rescue holds.
    pub fn remove(
        &self,
        workspace: &Workspace,
        may: Removal,
        put_away: impl FnOnce(&Removed) -> Result<(), WorkspaceError>,
    ) -> Result<Removed, WorkspaceError> {
        remove::remove(self, workspace, may, put_away)
    }

    /// Brings back what was put away, as it was.
    /// With `branch`, on a new branch of that name; else on the one it was on, if nobody has it.
    pub fn restore(&self, workspace: &Workspace, rescue: &str, branch: Option<&str>) -> Result<Made, WorkspaceError> {
        self.clear_ground(Path::new(&workspace.path))?;
        self.system().restore(self, workspace, rescue, branch)
    }

    /// A place for a new directory: nothing is there, and it is in no checkout of this repository. Another one around it, as a
    /// home directory under version control, is never asked: see [`crate::recorded`].
    fn clear_ground(&self, path: &Path) -> Result<(), WorkspaceError> {
        let parent = path.parent().unwrap_or(path);
        if let Some(there) = parent.ancestors().find(|dir| dir.is_dir())
            && let Some(around) = crate::find(there)?.filter(|around| around.common_dir == self.common_dir)
        {
            return Err(WorkspaceError::Inside { path: path.to_owned(), repository: around.root });
        }
        if remove::exists(path)? {
            return Err(WorkspaceError::InTheWay { path: path.to_owned() });
        }
        crate::private::create_dir_all(parent).map_err(lock::io("make", parent))
    }
}
