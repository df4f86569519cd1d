//! Git: worktrees and clones.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::workspace::{Left, Survey, Workspace, WorkspaceKind};

use super::{
    super::{
        Made, Rescue, Rescued, Stand, Start, WorkspaceBackend, git, moved, probe,
        probe::Probed,
        remove::{self, Removal, Removed},
        rescue::{self, RescueSource},
        restore, snapshot, survey, times,
    },
    Answer, WorkspaceSystem,
};

pub(super) struct GitWorkspaces;

impl WorkspaceSystem for GitWorkspaces {
    fn has_git_files(&self) -> bool {
        true
    }

    fn has_branches(&self) -> bool {
        true
    }

    fn branch_at(&self, backend: &WorkspaceBackend, dir: &Path) -> Answer<Option<String>> {
        Ok(backend.git_at(dir)?.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?.maybe()?)
    }

    fn has_branch(&self, backend: &WorkspaceBackend, name: &str) -> Answer<bool> {
        git::has_branch(backend, name)
    }

    fn start(&self, backend: &WorkspaceBackend, rev: Option<&str>) -> Answer<Start> {
        git::start(backend, rev)
    }

    fn commit_at(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>> {
        let name = format!("{rev}^{{commit}}");
        let ask = ["rev-parse", "--verify", "--quiet", "--end-of-options", &name];
        Ok(backend.git_at(dir)?.run(ask)?.maybe()?)
    }

    fn commit_made(&self, backend: &WorkspaceBackend, dir: &Path, rev: &str) -> Answer<Option<String>> {
        let Some(commit) = self.commit_at(backend, dir, rev)? else { return Ok(None) };
        Ok(backend.git_at(dir)?.run(["log", "-1", "--format=%H %ct", "--end-of-options", &commit])?.maybe()?)
    }

    fn stack(&self, backend: &WorkspaceBackend, start: String, needs: &[String]) -> Answer<(String, Vec<String>)> {
        if needs.is_empty() {
            return Ok((start, Vec::new()));
        }
        git::stack(backend, &start, needs)
    }

    fn make(&self, backend: &WorkspaceBackend, workspace: &Workspace, copy_of: Option<&str>) -> Answer<Made> {
        match workspace.kind {
            WorkspaceKind::Worktree => git::worktree(backend, workspace, copy_of),
            WorkspaceKind::Clone => git::clone(backend, workspace),
            WorkspaceKind::InPlace => Ok(Made::default()),
        }
    }

    fn clear_away(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<()> {
        git::clear_away(backend, workspace)
    }

    fn clear_locks(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        before: SystemTime,
    ) -> Answer<Vec<String>> {
        git::clear_locks(backend, workspace, before)
    }

    fn shed(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Left>> {
        survey::shed(backend, workspace)
    }

    fn is_here(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> bool {
        if workspace.kind == WorkspaceKind::Clone {
            let parent = crate::read(&dir.join(".git").join("toft").join(crate::git::PARENT));
            return parent.is_ok_and(|parent| parent.is_some_and(|parent| Path::new(&parent) == backend.common_dir));
        }
        let known = backend.entry_of(workspace);
        known.is_some() && git::git_dir(dir).ok() == known
    }

    fn stand(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Stand> {
        survey::stand(&backend.git_in(workspace, Path::new(&workspace.path))?)
    }

    fn head_in_files(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Option<String> {
        git::plain_head(backend, workspace)
    }

    fn begun_at(&self, _backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<String> {
        Ok(workspace.base.clone())
    }

    fn is_own(&self, backend: &WorkspaceBackend, workspace: &Workspace, before: &str, commit: &str) -> Answer<bool> {
        git::is_own(backend, workspace, before, commit)
    }

    fn survey(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Answer<Survey> {
        survey::survey(backend, workspace, dir)
    }

    fn diff(&self, backend: &WorkspaceBackend, workspace: &Workspace, base: &str, words: bool) -> Answer<Vec<u8>> {
        let git = backend.git_in(workspace, Path::new(&workspace.path))?;
        // An agent that took up newer work of others has not done that.
        let main = crate::git_run::Git::of(&backend.common_dir)?;
        let main = main.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.maybe()?;
        let joined = match main {
            Some(main) => git.run(["merge-base", &main, "HEAD"])?.maybe()?,
            None => None,
        };
        let head = git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.maybe()?;
        let base = joined.filter(|joined| Some(joined) != head.as_ref()).unwrap_or_else(|| base.to_owned());
        let run =
            git.run(["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"])?;
        let run = run.args(words.then_some("--word-diff=plain"));
        let index = with_new_files(&git, Path::new(&workspace.path))?;
        Ok(run.args([base.as_str(), "--"]).env("GIT_INDEX_FILE", index.path()).ok()?)
    }

    fn survey_missing(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Option<Survey>> {
        match (workspace.kind, backend.entry_of(workspace)) {
            (WorkspaceKind::Worktree, Some(own)) => survey::missing(backend, workspace, &own).map(Some),
            (WorkspaceKind::Worktree, None) | (WorkspaceKind::Clone | WorkspaceKind::InPlace, _) => Ok(None),
        }
    }

    fn leaves(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Left>> {
        let dir = Path::new(&workspace.path);
        if dir.is_dir() { snapshot::leaves(backend, workspace, dir) } else { Ok(Vec::new()) }
    }

    fn rescue(&self, backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path, ignored: bool) -> Answer<Rescued> {
        rescue::rescue(backend, workspace, &RescueSource::at(backend, workspace, dir)?, ignored)
    }

    fn rescues(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Answer<Vec<Rescue>> {
        rescue::all(backend, Some(workspace))
    }

    fn all_rescues(&self, backend: &WorkspaceBackend) -> Answer<Vec<Rescue>> {
        rescue::all(backend, None)
    }

    fn delete_rescue(&self, backend: &WorkspaceBackend, rescue: &Rescue) -> Answer<()> {
        rescue::delete(backend, rescue)
    }

    fn restore(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        rescue: &str,
        branch: Option<&str>,
    ) -> Answer<Made> {
        restore::restore(backend, workspace, rescue, branch)
    }

    fn save_before_removal(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        dir: &Path,
        survey: &Survey,
        may: Removal,
    ) -> Answer<(Option<Rescued>, Vec<Left>)> {
        if !remove::keeps(survey, may) {
            return Ok((None, snapshot::leaves(backend, workspace, dir)?));
        }
        let source = RescueSource::at(backend, workspace, dir)?;
        let rescue = rescue::ensure(backend, workspace, &source, may.ignored)?;
        let left = rescue.left.clone();
        Ok((Some(rescue), left))
    }

    fn unlist(&self, backend: &WorkspaceBackend, workspace: &Workspace, removed: &Removed) -> Answer<bool> {
        if workspace.kind != WorkspaceKind::Worktree {
            remove::forget_clone(backend, Path::new(&workspace.path))?;
            return Ok(false);
        }
        remove::unlist(backend, workspace)?;
        Ok(match removed.survey.as_ref().filter(|survey| survey.landed.is_some()) {
            // The workspace is removed already. If the branch cannot be examined now, it is kept, and the next gc tries
            // again.
            Some(survey) => remove::drop_branch(backend, workspace, &survey.head).unwrap_or_default(),
            None => false,
        })
    }

    fn keep_times(&self, backend: &WorkspaceBackend, workspace: &Workspace, newest: SystemTime) -> Answer<()> {
        times::keep_in(backend, workspace, newest)
    }

    fn ignores(&self, backend: &WorkspaceBackend, workspace: &Workspace, path: &str) -> Answer<bool> {
        let git = backend.git_in(workspace, Path::new(&workspace.path))?;
        Ok(git.run(["check-ignore", "--quiet", "--", path])?.end()?.code == 0)
    }

    fn sharing_in(&self, backend: &WorkspaceBackend, dir: &Path, anew: bool) -> Answer<Probed> {
        let git = backend.git()?;
        Ok(if anew { probe::attempt(git, dir) } else { probe::known(git, dir) })
    }

    fn repair(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> bool {
        let dir = Path::new(&workspace.path);
        match workspace.kind {
            WorkspaceKind::Worktree => {
                let link = dir.join(".git");
                let leads = |text: &str| text.trim().strip_prefix("gitdir: ").map(|target| dir.join(target));
                moved::leads_nowhere(&link, leads)
                    && backend.entry_of(workspace).is_some_and(|entry| {
                        moved::replace(dir, &[], ".git", &format!("gitdir: {}\n", entry.display())).is_ok()
                    })
            }
            WorkspaceKind::Clone => {
                let common = &backend.common_dir;
                let parent = dir.join(".git").join("toft").join(crate::git::PARENT);
                let clone_record = fs::read_to_string(crate::git::clone_record(common, dir));
                moved::leads_nowhere(&parent, |text| Some(PathBuf::from(text.trim_end())))
                    && clone_record.is_ok_and(|known| Path::new(known.trim_end()) == dir)
                    && moved::replace(dir, &[".git", "toft"], crate::git::PARENT, &common.display().to_string()).is_ok()
            }
            WorkspaceKind::InPlace => false,
        }
    }

    fn writes_elsewhere(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Vec<PathBuf> {
        match workspace.kind {
            WorkspaceKind::Clone => Vec::new(),
            WorkspaceKind::Worktree | WorkspaceKind::InPlace => {
                let own = backend.own_dir(workspace).ok().map(|own| own.git_dir);
                let shared = ["objects", "refs", "logs"].map(|name| backend.common_dir.join(name));
                shared.into_iter().chain(own).collect()
            }
        }
    }

    fn fixed_files(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Vec<PathBuf> {
        match (workspace.kind, backend.own_dir(workspace)) {
            (WorkspaceKind::Worktree, Ok(own)) => {
                ["commondir", "config.worktree", "locked"].map(|name| own.git_dir.join(name)).into()
            }
            (WorkspaceKind::Worktree, Err(_)) | (WorkspaceKind::Clone | WorkspaceKind::InPlace, _) => Vec::new(),
        }
    }
}

/// New files that a diff shows, and their size at most: what was built and is not ignored may be large.
const NEW_FILES: usize = 500;
const NEW_FILE: u64 = 256 << 10;

/// The index of a checkout with its new files, in a file of our own: that of the checkout stays as it is.
fn with_new_files(git: &crate::git_run::Git, dir: &Path) -> Answer<tempfile::NamedTempFile> {
    let io =
        |cause: std::io::Error| crate::workspace::WorkspaceError::Io { doing: "read", path: dir.to_owned(), cause };
    let copy = tempfile::NamedTempFile::new().map_err(io)?;
    let own = git.run(["rev-parse", "--git-path", "index"])?.maybe()?.unwrap_or_default();
    let own = dir.join(own);
    // A link that an agent put there is not followed.
    match fs::symlink_metadata(&own).is_ok_and(|meta| meta.is_file()) {
        true => drop(fs::copy(&own, copy.path()).map_err(io)?),
        false => fs::remove_file(copy.path()).map_err(io)?,
    }
    let named = git.run(["ls-files", "--others", "--exclude-standard", "-z"])?.ok()?;
    let small = |name: &&[u8]| {
        // A name that is not text is left out.
        let path = dir.join(String::from_utf8_lossy(name).as_ref());
        !name.is_empty() && fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir() && meta.len() <= NEW_FILE)
    };
    let new: Vec<&[u8]> = named.split(|byte| *byte == 0).filter(small).take(NEW_FILES).collect();
    if !new.is_empty() {
        let add =
            git.run(["add", "--intent-to-add", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul"])?;
        let add = add.env("GIT_INDEX_FILE", copy.path()).env("GIT_LITERAL_PATHSPECS", "1");
        // What cannot be added, such as a file that was removed just now, is left out.
        let _ = add.ok_fed(|to| to.write_all(&new.join(&0)));
    }
    Ok(copy)
}
