//! The operations on workspaces for each version control system, one file each.
//!
//! No method has a default, so a new system must implement every one and does not inherit git's behaviour by accident.
//! The story `every_system_gives_a_task_a_workspace_of_its_own` runs each of them with its real program.

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

/// The result of most methods.
pub(super) type Answer<T> = Result<T, WorkspaceError>;

/// The implementation for a version control system.
pub(super) fn of(vcs: Vcs) -> &'static dyn WorkspaceSystem {
    match vcs {
        Vcs::Git => &git::GitWorkspaces,
        Vcs::Jj => &jj::JjWorkspaces,
        Vcs::Hg => &hg::HgWorkspaces,
        Vcs::Sl | Vcs::None => &none::NoWorkspaces,
    }
}

/// Operations on the workspaces of one version control system.
pub(super) trait WorkspaceSystem: Sync {
    /// Whether the repository has git's files, from which much can be read without starting a program.
    fn has_git_files(&self) -> bool;

    /// Whether each workspace has a branch.
    fn has_branches(&self) -> bool;

    /// The branch that is checked out in a directory.
    fn branch_at(&self, backend: &WorkspaceBackend, dir: &Path) -> Answer<Option<String>>;

    /// Whether a branch of that name exists.
    fn has_branch(&self, backend: &WorkspaceBackend, name: &str) -> Answer<bool>;

    /// The commit that `rev` names, or the main checkout's commit.
    fn start(&self, backend: &WorkspaceBackend, rev: Option<&str>) -> Answer<Start>;

    /// The commit that a revision names in a checkout.
    fn commit_at(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>>;

    /// The commit that a revision names, and its time: a hash, a space, seconds.
    fn commit_made(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>>;

    /// The newest of the commits `needs` that is ahead of `start`, and notes about the others.
    fn stack(&self, backend: &WorkspaceBackend, start: String, needs: &[String]) -> Answer<(String, Vec<String>)>;

    /// Creates the directory of a workspace that is not in place. With `copy_of`, its files are copied from that base.
    fn make(&self, backend: &WorkspaceBackend, workspace: &Workspace, copy_of: Option<&str>) -> Answer<Made>;

    /// Removes the result of a failed [`WorkspaceSystem::make`].
    fn clear_away(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<()>;

    /// Deletes lock files that killed programs left in a workspace before a time, and returns their names.
    fn clear_locks(&self, backend: &WorkspaceBackend, workspace: &Workspace, before: SystemTime)
    -> Answer<Vec<String>>;

    /// Deletes ignored directories that tools can rebuild, and returns them.
    fn shed(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Left>>;

    /// Whether the directory at `dir` is this workspace.
    fn is_here(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> bool;

    /// The newest commit of a workspace, and the number of files with uncommitted changes.
    fn stand(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand>;

    /// The commit that is checked out, if files show it without starting a program.
    fn head_in_files(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Option<String>;

    /// The commit at which a workspace was created.
    fn begun_at(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<String>;

    /// Whether a commit contains work that was done in the workspace since `before`.
    fn is_own(&self, backend: &WorkspaceBackend, workspace: &Workspace, before: &str, commit: &str) -> Answer<bool>;

    /// Examines the content of a workspace.
    fn survey(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Answer<Survey>;

    /// The changes of a workspace since `base`, committed or not, in the format of git.
    fn diff(&self, backend: &WorkspaceBackend, workspace: &Workspace, base: &str, words: bool) -> Answer<Vec<u8>>;

    /// Examines the remaining data of a workspace whose directory was moved or deleted by hand.
    fn survey_missing(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Option<Survey>>;

    /// Files that a rescue would not contain, with sizes.
    fn leaves(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Left>>;

    /// Saves the content of a workspace as a rescue, and verifies it.
    fn rescue(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path, ignored: bool) -> Answer<Rescued>;

    /// The rescues of a workspace, oldest first.
    fn rescues(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Rescue>>;

    /// Every rescue in the repository, oldest first.
    fn all_rescues(&self, backend: &WorkspaceBackend) -> Answer<Vec<Rescue>>;

    /// Deletes a rescue.
    fn delete_rescue(&self, backend: &WorkspaceBackend, rescue: &Rescue) -> Answer<()>;

    /// Restores a rescue, on a new branch if one is named.
    fn restore(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        rescue: &str,
        branch: Option<&str>,
    ) -> Answer<Made>;

    /// Rescues content that exists nowhere else before a removal. Returns the rescue, and the files that it does not
    /// contain.
    fn save_before_removal(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        dir: &Path,
        survey: &Survey,
        may: Removal,
    ) -> Answer<(Option<Rescued>, Vec<Left>)>;

    /// Removes the system's records of a workspace that was deleted. Returns whether its branch was deleted too.
    fn unlist(&self, backend: &WorkspaceBackend, workspace: &Workspace, removed: &Removed) -> Answer<bool>;

    /// Sets the times of files in a new workspace so that builds detect which files differ. `newest` is the time of the
    /// newest artefact.
    fn keep_times(&self, backend: &WorkspaceBackend, workspace: &Workspace, newest: SystemTime) -> Answer<()>;

    /// Whether a path in a workspace is ignored.
    fn ignores(&self, backend: &WorkspaceBackend, workspace: &Workspace, path: &str) -> Answer<bool>;

    /// How workspaces can share files in a directory; with `anew`, tested even if the result is cached.
    fn sharing_in(&self, backend: &WorkspaceBackend, dir: &Path, anew: bool) -> Answer<Probed>;

    /// Repairs the links between a moved repository and a workspace. Returns whether that succeeded.
    fn repair(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> bool;

    /// Paths outside of the workspace that a commit in it writes.
    fn writes_elsewhere(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Vec<PathBuf>;

    /// Files below those paths that only toft may write.
    fn fixed_files(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Vec<PathBuf>;
}

/// Whether `dir` is a checkout of this repository, or the temporary path of the workspace during its removal.
fn is_checkout(backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> bool {
    let of_this = |found: crate::Checkout| found.root == dir && found.common_dir == backend.common_dir;
    super::remove::aside(workspace).0 == dir || crate::find(dir).ok().flatten().is_some_and(of_this)
}

/// The revision itself, except `HEAD`, which only git understands. Resolving it to a commit would be slow.
fn named(rev: &str) -> Option<String> {
    Some(rev.to_owned()).filter(|rev| rev != "HEAD")
}

/// The newest commit and the uncommitted changes, by a full survey.
fn stand_by_survey(system: &dyn WorkspaceSystem, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand> {
    let seen = system.survey(backend, workspace, Path::new(&workspace.path))?;
    Ok(Stand { commit: seen.head, uncommitted: seen.changed + seen.untracked })
}

/// Everything that is ignored, which no rescue contains.
fn ignored_left(dir: &Path, survey: &Survey) -> Vec<Left> {
    super::walk::left(dir, survey.artefacts.iter().map(PathBuf::from))
}
