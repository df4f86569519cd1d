//! Sapling and directories without version control: tasks are worked on in place.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::workspace::{Left, Survey, Workspace, WorkspaceKind};

use super::{
    super::{
        Made, Rescue, Rescued, Stand, Start, WorkspaceBackend,
        probe::Probed,
        remove::{self, Removal, Removed},
    },
    Answer, WorkspaceSystem, ignored_left, is_checkout, named, stand_by_survey,
};
use crate::{Vcs, command::Run};

pub(super) struct NoWorkspaces;

impl WorkspaceSystem for NoWorkspaces {
    fn has_git_files(&self) -> bool {
        false
    }

    fn has_branches(&self) -> bool {
        false
    }

    fn branch_at(&self, _backend: &WorkspaceBackend, _dir: &Path) -> Answer<Option<String>> {
        Ok(None)
    }

    fn has_branch(&self, _backend: &WorkspaceBackend, _name: &str) -> Answer<bool> {
        Ok(false)
    }

    fn start(&self, backend: &WorkspaceBackend, _rev: Option<&str>) -> Answer<Start> {
        Err(backend.not_for("a workspace"))
    }

    fn commit_at(&self, _backend: &WorkspaceBackend, _dir: &Path, rev: &str) -> Answer<Option<String>> {
        Ok(named(rev))
    }

    fn commit_made(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>> {
        if backend.vcs != Vcs::Sl {
            return Ok(None);
        }
        let rev = if rev == "HEAD" { "." } else { rev };
        Ok(Run::sl(dir)?.args(["log", "-T", "{node} {date|hgdate}", "-r", rev]).maybe()?)
    }

    fn stack(&self, _backend: &WorkspaceBackend, start: String, _needs: &[String]) -> Answer<(String, Vec<String>)> {
        Ok((start, Vec::new()))
    }

    fn make(&self, backend: &WorkspaceBackend, workspace: &Workspace, _copy_of: Option<&str>) -> Answer<Made> {
        match workspace.kind {
            WorkspaceKind::InPlace => Ok(Made::default()),
            WorkspaceKind::Worktree | WorkspaceKind::Clone => Err(backend.not_for("a workspace of this kind")),
        }
    }

    fn clear_away(&self, _backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<()> {
        remove::tree(Path::new(&workspace.path))
    }

    fn clear_locks(
        &self,
        _backend: &WorkspaceBackend,
        _workspace: &Workspace,
        _before: SystemTime,
    ) -> Answer<Vec<String>> {
        Ok(Vec::new())
    }

    fn shed(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Answer<Vec<Left>> {
        Ok(Vec::new())
    }

    fn is_here(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> bool {
        is_checkout(backend, workspace, dir)
    }

    fn stand(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand> {
        stand_by_survey(self, backend, workspace)
    }

    fn head_in_files(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Option<String> {
        None
    }

    fn begun_at(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<String> {
        Ok(self.stand(backend, workspace)?.commit)
    }

    fn is_own(
        &self,
        _backend: &WorkspaceBackend,
        _workspace: &Workspace,
        _before: &str,
        _commit: &str,
    ) -> Answer<bool> {
        Ok(true)
    }

    fn survey(&self, backend: &WorkspaceBackend, _workspace: &Workspace, _dir: &Path) -> Answer<Survey> {
        Err(backend.not_for("a workspace"))
    }

    fn diff(&self, backend: &WorkspaceBackend, _workspace: &Workspace, _base: &str, _words: bool) -> Answer<Vec<u8>> {
        Err(backend.not_for("a diff"))
    }

    fn survey_missing(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Answer<Option<Survey>> {
        Ok(None)
    }

    fn leaves(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Answer<Vec<Left>> {
        Ok(Vec::new())
    }

    fn rescue(
        &self,
        backend: &WorkspaceBackend,
        _workspace: &Workspace,
        _dir: &Path,
        _ignored: bool,
    ) -> Answer<Rescued> {
        Err(backend.not_for("a rescue"))
    }

    fn rescues(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Answer<Vec<Rescue>> {
        Ok(Vec::new())
    }

    fn all_rescues(&self, _backend: &WorkspaceBackend) -> Answer<Vec<Rescue>> {
        Ok(Vec::new())
    }

    fn delete_rescue(&self, backend: &WorkspaceBackend, _rescue: &Rescue) -> Answer<()> {
        Err(backend.not_for("deleting a rescue"))
    }

    fn restore(
        &self,
        backend: &WorkspaceBackend,
        _workspace: &Workspace,
        _rescue: &str,
        _branch: Option<&str>,
    ) -> Answer<Made> {
        Err(backend.not_for("a rescue"))
    }

    fn save_before_removal(
        &self,
        _backend: &WorkspaceBackend,
        _workspace: &Workspace,
        dir: &Path,
        survey: &Survey,
        _may: Removal,
    ) -> Answer<(Option<Rescued>, Vec<Left>)> {
        Ok((None, ignored_left(dir, survey)))
    }

    fn unlist(&self, _backend: &WorkspaceBackend, _workspace: &Workspace, _removed: &Removed) -> Answer<bool> {
        Ok(false)
    }

    fn keep_times(&self, _backend: &WorkspaceBackend, _workspace: &Workspace, _newest: SystemTime) -> Answer<()> {
        Ok(())
    }

    fn ignores(&self, _backend: &WorkspaceBackend, _workspace: &Workspace, _path: &str) -> Answer<bool> {
        Ok(true)
    }

    fn sharing_in(&self, backend: &WorkspaceBackend, _dir: &Path, _anew: bool) -> Answer<Probed> {
        Err(backend.not_for("sharing a checkout"))
    }

    fn repair(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> bool {
        false
    }

    fn writes_elsewhere(&self, backend: &WorkspaceBackend, _workspace: &Workspace) -> Vec<PathBuf> {
        vec![backend.common_dir.clone()]
    }

    fn fixed_files(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Vec<PathBuf> {
        Vec::new()
    }
}
