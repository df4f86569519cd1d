//! Mercurial shares. Commits are stored in the shared repository. Uncommitted changes cannot be rescued, so only a
//! clean share is removed.

use std::path::{Path, PathBuf};

use toft_core::workspace::{Survey, Workspace};

use super::{LIST, Made, Start, WorkspaceBackend, WorkspaceError, survey::path_of, walk};
use crate::{command::Run, lock::RepoLock};

pub(super) fn start(root: &Path, rev: Option<&str>) -> Result<Start, WorkspaceError> {
    let rev = rev.unwrap_or(".");
    let commit = Run::hg(root)?.args(["log", "--template", "{node}", "--rev"]).arg(rev).maybe()?;
    match commit {
        Some(commit) => Ok(Start { commit, onto: None }),
        None => Err(WorkspaceError::NoBase { text: rev.to_owned() }),
    }
}

pub(super) fn provide(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Made, WorkspaceError> {
    let source = backend.common_dir.parent().unwrap_or(&backend.common_dir);
    {
        let _turn = RepoLock::wait(&backend.state, LIST)?;
        Run::hg(&backend.root)?.args(["share", "--noupdate"]).arg(source).arg(&workspace.path).ok()?;
    }
    Run::hg(Path::new(&workspace.path))?.args(["update", "--rev", &workspace.base]).ok()?;
    Ok(Made::default())
}

pub(super) fn survey(workspace: &Workspace, dir: &Path) -> Result<Survey, WorkspaceError> {
    const BEGUN: [&str; 5] = ["merge", "histedit-state", "rebasestate", "graftstate", "shelvedstate"];
    let listed = ["--modified", "--added", "--removed", "--deleted", "--unknown", "--ignored", "--print0"];
    let status = Run::hg(dir)?.arg("status").args(listed).ok()?;
    let lines = status.split(|byte| *byte == 0).filter(|line| line.len() > 2);
    let (ignored, files): (Vec<&[u8]>, Vec<&[u8]>) = lines.partition(|line| line.starts_with(b"I "));
    let ignored: Vec<PathBuf> = ignored.into_iter().map(|line| path_of(&line[2..])).collect();
    let untracked = files.iter().filter(|line| line.starts_with(b"?")).count();
    let head = Run::hg(dir)?.args(["log", "--template", "{node}", "--rev", "."]).text()?;
    let ahead = format!("draft() and ::. and not ::{}", workspace.base);
    let ahead = Run::hg(dir)?.args(["log", "--template", "x\n", "--rev", &ahead]).text()?.lines().count();
    let (ahead, landed) = super::landed::seen(workspace, &head, ahead, head == workspace.base);
    let own = dir.join(".hg");
    let changed = files.len() - untracked;
    let mut stuck = Vec::new();
    if own.join("shelved").is_dir() {
        stuck.push("it has shelved changes".to_owned());
    }
    if changed + untracked > 0 {
        stuck.push(format!("{} files are not committed, which for hg cannot be put away", changed + untracked));
    }
    let (only, artefacts) = walk::only_here(dir, Path::new(&workspace.source), ignored);
    stuck.extend(walk::cannot_go("hg", &only, &walk::walk(dir, &artefacts)?.repositories));
    Ok(Survey {
        ignored: only.len(),
        artefacts: artefacts.iter().map(|path| path.display().to_string()).collect(),
        changed,
        untracked,
        ahead,
        landed,
        doing: BEGUN.iter().find(|name| own.join(name).exists()).map(|name| (*name).to_owned()),
        stuck,
        head,
        ..Survey::default()
    })
}
