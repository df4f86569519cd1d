//! Jujutsu workspaces. Each jj command commits the content of its workspace, and the commit remains when the directory
//! is deleted: that commit is the rescue.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use toft_core::workspace::{Survey, Workspace};

use super::{LIST, Made, Stand, Start, WorkspaceBackend, WorkspaceError, walk};
use crate::{command::Run, lock::RepoLock};

const COMMIT: &str = "commit_id ++ \"\\n\"";

fn commits(dir: &Path, revset: &str) -> Result<Vec<String>, WorkspaceError> {
    let run = Run::jj(dir)?.args(["log", "--no-graph", "-T", COMMIT, "-r", revset]);
    Ok(run.text()?.lines().map(str::to_owned).collect())
}

pub(super) fn start(root: &Path, rev: Option<&str>) -> Result<Start, WorkspaceError> {
    let rev = rev.unwrap_or("@-");
    let found = commits(root, rev)?;
    match found.as_slice() {
        [commit] => Ok(Start { commit: commit.clone(), onto: None }),
        _ => Err(WorkspaceError::NoBase { text: rev.to_owned() }),
    }
}

pub(super) fn provide(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Made, WorkspaceError> {
    let _turn = RepoLock::wait(&backend.state, LIST)?;
    let add = ["workspace", "add", "--name", &workspace.name, "--revision", &workspace.base, &workspace.path];
    Run::jj(&backend.root)?.args(add).ok()?;
    Ok(Made::default())
}

pub(super) fn survey(backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Result<Survey, WorkspaceError> {
    let head = rescue(dir)?;
    let own = format!("{}@", workspace.name);
    let changed = Run::jj(dir)?.args(["diff", "--name-only", "-r", "@"]).text()?;
    let elsewhere = format!("::(bookmarks() | remote_bookmarks() | (working_copies() ~ {own}) | {})", workspace.base);
    let ahead = commits(&backend.root, &format!("(::{head} ~ {elsewhere}) ~ empty()"))?.len();
    let (ahead, landed) = super::landed::seen(workspace, &stand(dir)?.commit, ahead, changed.is_empty());
    // Ignored files are not part of the commit.
    let listed = Run::jj(dir)?.args(["file", "list", "-T", "path ++ \"\\0\""]).ok()?;
    let kept: BTreeSet<PathBuf> = listed.split(|byte| *byte == 0).map(super::survey::path_of).collect();
    let others = walk::files(dir)?.into_iter().filter(|name| !kept.contains(name)).collect();
    let (only, artefacts) = walk::only_here(dir, Path::new(&workspace.source), others);
    let repositories = walk::walk(dir, &artefacts)?.repositories;
    let only: Vec<_> =
        only.into_iter().filter(|name| !repositories.iter().any(|path| name.starts_with(path))).collect();
    Ok(Survey {
        stuck: walk::cannot_go("jj", &only, &repositories),
        ignored: only.len(),
        artefacts: artefacts.iter().map(|path| path.display().to_string()).collect(),
        changed: changed.lines().count(),
        ahead,
        landed,
        head,
        ..Survey::default()
    })
}

/// The newest commit that changes something. Nothing is uncommitted after jj has taken its snapshot.
pub(super) fn stand(dir: &Path) -> Result<Stand, WorkspaceError> {
    let found = commits(dir, "heads(::@ ~ empty())")?;
    Ok(Stand { commit: found.first().cloned().unwrap_or_default(), uncommitted: 0 })
}

/// Lets jj take a snapshot, and returns its commit.
pub(super) fn rescue(dir: &Path) -> Result<String, WorkspaceError> {
    let found = commits(dir, "@")?;
    found.first().cloned().ok_or_else(|| WorkspaceError::NoBase { text: "@".into() })
}

/// Removes a workspace from jj's list; its commits remain.
pub(super) fn forget(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<(), WorkspaceError> {
    let _turn = RepoLock::wait(&backend.state, LIST)?;
    let listed = Run::jj(&backend.root)?.args(["workspace", "list", "-T", "name ++ \"\\n\""]).text()?;
    if listed.lines().any(|name| name == workspace.name) {
        Run::jj(&backend.root)?.args(["workspace", "forget", &workspace.name]).ok()?;
    }
    Ok(())
}

pub(super) fn restore(backend: &WorkspaceBackend, workspace: &Workspace, rescue: &str) -> Result<Made, WorkspaceError> {
    provide(backend, workspace)?;
    Run::jj(Path::new(&workspace.path))?.args(["edit", rescue]).ok()?;
    Ok(Made::default())
}
