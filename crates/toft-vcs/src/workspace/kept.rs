//! What is kept of a workspace, and what is not: rescues, for each version control.

use std::path::Path;

use toft_core::workspace::{Left, Survey, Workspace, WorkspaceKind};

use super::{
    WorkspaceBackend, WorkspaceError, jj,
    rescue::{self, Rescue, Rescued},
    snapshot, survey,
};
use crate::Vcs;

impl WorkspaceBackend {
    /// What is left of a worktree whose directory was moved or deleted by hand; nothing if git has forgotten it too.
    pub fn survey_missing(&self, workspace: &Workspace) -> Result<Option<Survey>, WorkspaceError> {
        match (self.vcs, workspace.kind, self.entry_of(workspace)) {
            (Vcs::Git, WorkspaceKind::Worktree, Some(own)) => survey::missing(self, workspace, &own).map(Some),
            _ => Ok(None),
        }
    }

    /// What a rescue of it would not hold, with sizes.
    pub fn leaves(&self, workspace: &Workspace) -> Result<Vec<Left>, WorkspaceError> {
        let dir = Path::new(&workspace.path);
        match self.vcs {
            Vcs::Git if dir.is_dir() => snapshot::leaves(self, workspace, dir),
            _ => Ok(Vec::new()),
        }
    }

    /// Puts everything in it away where the repository keeps it, and reads it back; with `ignored`, large ignored files and
    /// directories too. Changes nothing in it.
    pub fn rescue(&self, workspace: &Workspace, ignored: bool) -> Result<Rescued, WorkspaceError> {
        self.open(workspace)?;
        self.rescue_at(workspace, Path::new(&workspace.path), ignored)
    }

    pub(super) fn rescue_at(
        &self,
        workspace: &Workspace,
        dir: &Path,
        ignored: bool,
    ) -> Result<Rescued, WorkspaceError> {
        match self.vcs {
            Vcs::Git => rescue::rescue(self, workspace, &rescue::RescueSource::at(self, workspace, dir)?, ignored),
            Vcs::Jj => jj::rescue(dir).map(|commit| Rescued { commit, ..Rescued::default() }),
            _ => Err(self.not_for("a rescue")),
        }
    }

    /// The rescues of a workspace, oldest first.
    pub fn rescues(&self, workspace: &Workspace) -> Result<Vec<Rescue>, WorkspaceError> {
        match self.vcs {
            Vcs::Git => rescue::all(self, Some(workspace)),
            _ => Ok(workspace.rescue.iter().map(|commit| Rescue::plain(workspace, commit)).collect()),
        }
    }

    /// Every rescue in the repository, oldest first.
    pub fn all_rescues(&self) -> Result<Vec<Rescue>, WorkspaceError> {
        match self.vcs {
            Vcs::Git => rescue::all(self, None),
            _ => Ok(Vec::new()),
        }
    }

    /// Deletes a rescue.
    pub fn delete_rescue(&self, rescue: &Rescue) -> Result<(), WorkspaceError> {
        match self.vcs {
            Vcs::Git => rescue::delete(self, rescue),
            _ => Err(self.not_for("deleting a rescue")),
        }
    }
}
