//! Rescues, for every version control system.

use std::path::Path;

use toft_core::workspace::{Left, Survey, Workspace};

use super::{
    WorkspaceBackend, WorkspaceError,
    rescue::{Rescue, Rescued},
};

impl WorkspaceBackend {
    /// Examines git's data of a worktree whose directory was moved or deleted by hand; `None` if git has no data of it
    /// either.
    pub fn survey_missing(&self, workspace: &Workspace) -> Result<Option<Survey>, WorkspaceError> {
        self.system().survey_missing(self, workspace)
    }

    /// Files that a rescue would not contain, with sizes.
    pub fn leaves(&self, workspace: &Workspace) -> Result<Vec<Left>, WorkspaceError> {
        self.system().leaves(self, workspace)
    }

    /// Saves the content of a workspace as a rescue and verifies it; with `ignored`, including large ignored files and
    /// directories. Changes nothing in the workspace.
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
