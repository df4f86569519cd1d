//! Jujutsu: workspaces of one repository. Their content is always in commits.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::workspace::{Left, Survey, Workspace, WorkspaceKind};

use super::{
    super::{
        Made, Rescue, Rescued, Stand, Start, WorkspaceBackend, jj,
        probe::Probed,
        remove::{self, Removal, Removed},
    },
    Answer, WorkspaceSystem, ignored_left, is_checkout, named,
};
use crate::command::Run;

pub(super) struct JjWorkspaces;

impl WorkspaceSystem for JjWorkspaces {
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

    fn start(&self, backend: &WorkspaceBackend, rev: Option<&str>) -> Answer<Start> {
        jj::start(&backend.root, rev)
    }

    fn commit_at(&self, _backend: &WorkspaceBackend, _dir: &Path, rev: &str) -> Answer<Option<String>> {
        Ok(named(rev))
    }

    fn commit_made(&self, _backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>> {
        let made = r#"commit_id ++ " " ++ committer.timestamp().format("%s")"#;
        let rev = if rev == "HEAD" { "@-" } else { rev };
        Ok(Run::jj(dir)?.args(["log", "--no-graph", "-T", made, "-r", rev]).maybe()?)
    }

    fn stack(&self, _backend: &WorkspaceBackend, start: String, _needs: &[String]) -> Answer<(String, Vec<String>)> {
        Ok((start, Vec::new()))
    }

    fn make(&self, backend: &WorkspaceBackend, workspace: &Workspace, _copy_of: Option<&str>) -> Answer<Made> {
        match workspace.kind {
            WorkspaceKind::Worktree => jj::provide(backend, workspace),
            WorkspaceKind::InPlace => Ok(Made::default()),
            WorkspaceKind::Clone => Err(backend.not_for("a workspace of this kind")),
        }
    }

    fn clear_away(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<()> {
        jj::forget(backend, workspace).and_then(|()| remove::tree(Path::new(&workspace.path)))
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

    fn stand(&self, _backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand> {
        jj::stand(Path::new(&workspace.path))
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

    fn survey(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Answer<Survey> {
        jj::survey(backend, workspace, dir)
    }

    fn diff(&self, backend: &WorkspaceBackend, workspace: &Workspace, base: &str, words: bool) -> Answer<Vec<u8>> {
        if words {
            return Err(backend.not_for("a diff of words"));
        }
        let run = Run::jj(Path::new(&workspace.path))?;
        Ok(run.args(["diff", "--git", "--from", base, "--to", "@"]).ok()?)
    }

    fn survey_missing(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Answer<Option<Survey>> {
        Ok(None)
    }

    fn leaves(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Answer<Vec<Left>> {
        Ok(Vec::new())
    }

    fn rescue(
        &self,
        _backend: &WorkspaceBackend,
        _workspace: &Workspace,
        dir: &Path,
        _ignored: bool,
    ) -> Answer<Rescued> {
        jj::rescue(dir).map(|commit| Rescued { commit, ..Rescued::default() })
    }

    fn rescues(&self, _backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Rescue>> {
        Ok(workspace.rescue.iter().map(|commit| Rescue::plain(workspace, commit)).collect())
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
        workspace: &Workspace,
        rescue: &str,
        _branch: Option<&str>,
    ) -> Answer<Made> {
        jj::restore(backend, workspace, rescue)
    }

    fn save_before_removal(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        dir: &Path,
        survey: &Survey,
        may: Removal,
    ) -> Answer<(Option<Rescued>, Vec<Left>)> {
        let rescue = self.rescue(backend, workspace, dir, may.ignored)?;
        Ok((Some(rescue), ignored_left(dir, survey)))
    }

    fn unlist(&self, backend: &WorkspaceBackend, workspace: &Workspace, _removed: &Removed) -> Answer<bool> {
        jj::forget(backend, workspace)?;
        Ok(false)
    }

    fn keep_times(&self, _backend: &WorkspaceBackend, _workspace: &Workspace, _newest: SystemTime) -> Answer<()> {
        Ok(())
    }

    fn ignores(&self, _backend: &WorkspaceBackend, _workspace: &Workspace, _path: &str) -> Answer<bool> {
        Ok(false)
    }

    fn sharing_in(&self, backend: &WorkspaceBackend, _dir: &Path, _anew: bool) -> Answer<Probed> {
        Err(backend.not_for("sharing a checkout"))
    }

    fn repair(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> bool {
        false
    }

    fn writes_elsewhere(&self, backend: &WorkspaceBackend, _workspace: &Workspace) -> Vec<PathBuf> {
        // Its own repository, and what a commit writes in that of git, but neither configuration nor hooks.
        let common = &backend.common_dir;
        let own = match common.parent().filter(|_| common.ends_with(".git")) {
            Some(root) => root.join(".jj/repo"),
            None => common.clone(),
        };
        let git = if common.ends_with(".git") { common.clone() } else { own.join("store/git") };
        [own].into_iter().chain(["objects", "refs", "logs"].map(|name| git.join(name))).collect()
    }

    fn fixed_files(&self, _backend: &WorkspaceBackend, _workspace: &Workspace) -> Vec<PathBuf> {
        Vec::new()
    }
}
