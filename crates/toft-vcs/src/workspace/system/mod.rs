//! What each version control system does for workspaces, one file each.
//!
//! No method has a default: a new system answers every question here, and nothing is git's way by accident. The story
//! `every_system_gives_a_task_a_workspace_of_its_own` runs each of them with its real program.

mod git;
mod hg;
mod jj;
mod none;

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::workspace::{Left, Survey, Workspace};

use super::{
    Made, Rescue, Rescued, Stand, Start, WorkspaceBackend, WorkspaceError,
    probe::Probed,
    remove::{Removal, Removed},
};
use crate::Vcs;

/// The answer of most questions.
pub(super) type Answer<T> = Result<T, WorkspaceError>;

/// The system of a repository.
pub(super) fn of(vcs: Vcs) -> &'static dyn WorkspaceSystem {
    match vcs {
        Vcs::Git => &git::GitWorkspaces,
        Vcs::Jj => &jj::JjWorkspaces,
        Vcs::Hg => &hg::HgWorkspaces,
        Vcs::Sl | Vcs::None => &none::NoWorkspaces,
    }
}

/// Workspaces under one version control system.
pub(super) trait WorkspaceSystem: Sync {
    /// The repository has git's own files, which tell much without starting a program.
    fn has_git_files(&self) -> bool;

    /// A workspace has a branch of its own.
    fn has_branches(&self) -> bool;

    /// The branch that a checkout is on.
    fn branch_at(&self, backend: &WorkspaceBackend, dir: &Path) -> Answer<Option<String>>;

    /// Whether a branch of that name exists.
    fn has_branch(&self, backend: &WorkspaceBackend, name: &str) -> Answer<bool>;

    /// The commit that `rev` names, or that the main checkout is on.
    fn start(&self, backend: &WorkspaceBackend, rev: Option<&str>) -> Answer<Start>;

    /// The commit that a revision names in a checkout.
    fn commit_at(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>>;

    /// The commit that a revision names, and when it was made: a hash, a space, seconds.
    fn commit_made(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>>;

    /// The newest of the commits `needs` that is ahead of `start`, and what to know about the others.
    fn stack(&self, backend: &WorkspaceBackend, start: String, needs: &[String]) -> Answer<(String, Vec<String>)>;

    /// Makes the directory of a workspace that is not in place, with copies of a frozen checkout if one is named.
    fn make(&self, backend: &WorkspaceBackend, workspace: &Workspace, copy_of: Option<&str>) -> Answer<Made>;

    /// Removes what a failed [`WorkspaceSystem::make`] left.
    fn clear_away(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<()>;

    /// Removes locks that killed programs left in a workspace before a moment; gives which.
    fn clear_locks(&self, backend: &WorkspaceBackend, workspace: &Workspace, before: SystemTime)
    -> Answer<Vec<String>>;

    /// Removes ignored directories that tools build again; gives which.
    fn shed(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Left>>;

    /// Whether what is at `dir` is this workspace.
    fn is_here(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> bool;

    /// The newest commit of a workspace, and how many files are changed.
    fn stand(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand>;

    /// The commit that a workspace is on, if files tell without a program.
    fn head_in_files(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Option<String>;

    /// The commit that a workspace was made on.
    fn begun_at(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<String>;

    /// Whether a commit holds something that was made in the workspace since `before`.
    fn is_own(&self, backend: &WorkspaceBackend, workspace: &Workspace, before: &str, commit: &str) -> Answer<bool>;

    /// What is in a workspace.
    fn survey(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Answer<Survey>;

    /// What is left of a workspace whose directory was moved or deleted by hand.
    fn survey_missing(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Option<Survey>>;

    /// What a rescue would not hold, with sizes.
    fn leaves(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Left>>;

    /// Saves everything in a workspace, and reads it back.
    fn rescue(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path, ignored: bool) -> Answer<Rescued>;

    /// The rescues of a workspace, oldest first.
    fn rescues(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Rescue>>;

    /// Every rescue in the repository, oldest first.
    fn all_rescues(&self, backend: &WorkspaceBackend) -> Answer<Vec<Rescue>>;

    /// Deletes a rescue.
    fn delete_rescue(&self, backend: &WorkspaceBackend, rescue: &Rescue) -> Answer<()>;

    /// Brings back what a rescue holds, on a new branch if one is named.
    fn restore(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        rescue: &str,
        branch: Option<&str>,
    ) -> Answer<Made>;

    /// Saves what is only in a workspace before it is removed: the rescue, and what no rescue holds.
    fn save_before_removal(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        dir: &Path,
        survey: &Survey,
        may: Removal,
    ) -> Answer<(Option<Rescued>, Vec<Left>)>;

    /// Takes a workspace that is gone off the lists of the system; whether its branch was deleted too.
    fn unlist(&self, backend: &WorkspaceBackend, workspace: &Workspace, removed: &Removed) -> Answer<bool>;

    /// Gives files of a new workspace the times by which builds see what differs; the newest artefact is of that time.
    fn keep_times(&self, backend: &WorkspaceBackend, workspace: &Workspace, newest: SystemTime) -> Answer<()>;

    /// Whether a path in a workspace is ignored.
    fn ignores(&self, backend: &WorkspaceBackend, workspace: &Workspace, path: &str) -> Answer<bool>;

    /// How workspaces can share files in a directory; with `anew`, tried whatever is known.
    fn sharing_in(&self, backend: &WorkspaceBackend, dir: &Path, anew: bool) -> Answer<Probed>;

    /// Mends the links between a repository that was moved and a workspace; whether that helped.
    fn repair(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> bool;

    /// Where a commit in a workspace writes besides its directory.
    fn writes_elsewhere(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Vec<PathBuf>;

    /// Files that only toft writes, below where a workspace's commits write.
    fn fixed_files(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Vec<PathBuf>;
}

/// Whether a checkout of this repository is at `dir`, or the workspace on its way out.
fn is_checkout(backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> bool {
    let of_this = |found: crate::Checkout| found.root == dir && found.common_dir == backend.common_dir;
    super::remove::aside(workspace).0 == dir || crate::find(dir).ok().flatten().is_some_and(of_this)
}

/// The revision itself: where its commit is cannot be asked cheaply, and `HEAD` is git's word.
fn named(rev: &str) -> Option<String> {
    Some(rev.to_owned()).filter(|rev| rev != "HEAD")
}

/// Where a checkout stands, by a whole survey.
fn stand_by_survey(system: &dyn WorkspaceSystem, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand> {
    let seen = system.survey(backend, workspace, Path::new(&workspace.path))?;
    Ok(Stand { commit: seen.head, uncommitted: seen.changed + seen.untracked })
}

/// What no rescue holds: everything that is ignored.
fn ignored_left(dir: &Path, survey: &Survey) -> Vec<Left> {
    super::walk::left(dir, survey.artefacts.iter().map(PathBuf::from))
}
