//! Runs git in a workspace, and lists the paths that work in one may write.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::{WorkspaceBackend, WorkspaceError};
use crate::{
    command::RunError,
    git_run::{self, Git, OwnDir},
    git_view::GitView,
};

impl WorkspaceBackend {
    /// Git in a workspace that is now at `dir`. It ignores the workspace's own `.git`, and any configuration that the
    /// agent can write.
    pub(super) fn git_in(&self, workspace: &Workspace, dir: &Path) -> Result<Git, WorkspaceError> {
        let own = match workspace.kind {
            WorkspaceKind::Clone => None,
            _ => Some(self.own_dir(workspace)?),
        };
        let git_dir = own.as_ref().map_or_else(|| dir.join(".git"), |own| own.git_dir.clone());
        if let Some(path) =
            crate::git::unexpected_file_in(&git_dir).or_else(|| crate::git::unexpected_rules_file_in(dir))
        {
            return Err(RunError::Odd { path, why: crate::git::UNEXPECTED_FILE.to_owned() }.into());
        }
        match own {
            None => Ok(Git::foreign(dir, &git_dir)?),
            Some(own) => self.git_of(&own, dir),
        }
    }

    /// Refuses to let git list the worktrees while an entry contains a pipe where git opens a file: git would block.
    pub(super) fn can_list(&self) -> Result<(), WorkspaceError> {
        let entries = fs::read_dir(self.common_dir.join("worktrees")).into_iter().flatten().flatten();
        match entries.into_iter().find_map(|entry| crate::git::unexpected_file_in(&entry.path())) {
            Some(path) => Err(RunError::Odd {
                path,
                why: format!("{}; move it away, and try again", crate::git::UNEXPECTED_FILE),
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Git in a checkout of this repository.
    pub(super) fn git_at(&self, dir: &Path) -> Result<Git, WorkspaceError> {
        self.git_of(&git_run::own_dir(&self.common_dir, dir)?, dir)
    }

    fn git_of(&self, own: &OwnDir, dir: &Path) -> Result<Git, WorkspaceError> {
        if own.common != self.common_dir {
            return Ok(Git::foreign(dir, &own.git_dir)?);
        }
        if self.view.get().is_none() {
            let view = Arc::new(GitView::linked(&self.common_dir)?);
            self.view.get_or_init(|| view);
        }
        let view = self.view.get().ok_or_else(|| self.not_for("git"))?;
        Ok(Git::seen_through(view, dir, own)?)
    }

    /// Git on the repository's data of a worktree whose directory does not exist.
    pub(super) fn git_without_files(&self, own: &Path) -> Result<Git, WorkspaceError> {
        self.git_of(&OwnDir { git_dir: own.to_owned(), common: self.common_dir.clone() }, own)
    }

    /// The git directory of a workspace, as recorded in the repository.
    pub(super) fn own_dir(&self, workspace: &Workspace) -> Result<OwnDir, WorkspaceError> {
        Ok(git_run::own_dir(&self.common_dir, Path::new(&workspace.path))?)
    }

    /// Paths that work in a workspace writes: its directory, and those that a commit writes elsewhere. Hooks,
    /// configuration and other worktrees are not among them.
    pub fn written(&self, workspace: &Workspace) -> Vec<PathBuf> {
        let dir = PathBuf::from(&workspace.path);
        let elsewhere = self.system().writes_elsewhere(self, workspace);
        [dir].into_iter().chain(elsewhere).collect()
    }

    /// The changes of a workspace since it was created, committed or not, in the format of git; with `words`, each word is
    /// marked.
    pub fn diff(&self, workspace: &Workspace, words: bool) -> Result<Vec<u8>, WorkspaceError> {
        self.system().diff(self, workspace, &workspace.base, words)
    }

    /// Files below those paths that only toft may write, because they tell git where to find things.
    pub fn fixed(&self, workspace: &Workspace) -> Vec<PathBuf> {
        self.system().fixed_files(self, workspace)
    }
}
