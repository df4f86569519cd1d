//! What is kept of a workspace, and what is not: rescues, for each version control.

use std::path::Path;

use toft_core::workspace::{Left, Survey, Workspace};

use super::{
    WorkspaceBackend, WorkspaceError,
    rescue::{Rescue, Rescued},
};

impl WorkspaceBackend {
    /// What is left of a worktree whose directory was moved or deleted by hand; nothing if git has forgotten it too.
    pub fn survey_missing(&self, workspace: &Workspace) -> Result<Option<Survey>, WorkspaceError> {
        self.system().survey_missing(self, workspace)
    }

    /// What a rescue of it would not hold, with sizes.
    pub fn leaves(&self, workspace: &Workspace) -> Result<Vec<Left>, WorkspaceError> {
        self.system().leaves(self, workspace)
    }

    /// Puts everything in it away where the repository keeps it, and reads it back; with `ignored`, large ignored files and
    /// directories too. Changes nothing in it.
    pub fn rescue(&self, workspace: &Workspace, ignored: bool) -> Result<Rescued, WorkspaceError> {
        self.open(workspace)?;
        self.system().rescue(self, workspace, Path::new(&workspace.path), ignored)
    }

    /// The rescues of a workspace, oldest first.
    pub fn rescues(&self, workspace: &Workspace) -> Result<Vec<Rescue>, WorkspaceError> {
        self.system().rescues(self, workspace)
    }

    /// Every rescue in the repository, oldest first.
    pub fn all_rescues(&self) -> Result<Vec<Rescue>, WorkspaceError> {
        self.system().all_rescues(self)
    }

    /// Deletes a rescue.
    pub fn delete_rescue(&self, rescue: &Rescue) -> Result<(), WorkspaceError> {
        self.system().delete_rescue(self, rescue)
    }
}
