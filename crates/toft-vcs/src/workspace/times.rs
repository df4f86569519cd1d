//! Modification times, by which make, cargo and npm decide what to rebuild.
//!
//! Artefacts are copied from the main checkout with their times. A source file that is the same in both checkouts gets
//! the time that it has there, so that nothing is rebuilt without need. A file that differs is newer than every
//! artefact.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use nix::{
    fcntl::AT_FDCWD,
    sys::{
        stat::{UtimensatFlags, utimensat},
        time::TimeSpec,
    },
};
use toft_core::workspace::Workspace;

use super::{WorkspaceBackend, WorkspaceError, git, survey::path_of};
use crate::{command::Run, lock};

impl WorkspaceBackend {
    /// Sets the times of files in a workspace that was just set up, so that builds detect which differ from the main
    /// checkout. `newest` is the time of the newest artefact.
    pub fn keep_times(&self, workspace: &Workspace, newest: SystemTime) -> Result<(), WorkspaceError> {
        self.system().keep_times(self, workspace, newest)
    }

    /// Whether version control ignores a path in a workspace.
    pub fn ignores(&self, workspace: &Workspace, path: &str) -> Result<bool, WorkspaceError> {
        self.system().ignores(self, workspace, path)
    }
}

/// Sets the modification time of a file, directory or link. Links are not followed.
pub fn set_modified(path: &Path, time: SystemTime) -> io::Result<()> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let flag = UtimensatFlags::NoFollowSymlink;
    utimensat(AT_FDCWD, path, &TimeSpec::UTIME_OMIT, &TimeSpec::from_duration(since), flag).map_err(Into::into)
}

/// Sets the times in a new base that contains its artefacts.
pub(super) fn keep_in_base(
    backend: &WorkspaceBackend,
    tree: &Path,
    index: &Path,
    commit: &str,
    newest: Option<SystemTime>,
) -> Result<(), WorkspaceError> {
    let git = backend.git()?;
    let asked = |args: &[&str]| -> Result<Run, WorkspaceError> {
        Ok(git.run(args)?.env("GIT_WORK_TREE", tree).env("GIT_INDEX_FILE", index))
    };
    keep(backend, tree, commit, SystemTime::now().max(newest.unwrap_or(SystemTime::UNIX_EPOCH)), asked)
}

/// Sets the times in a workspace that was just set up. `newest` is the time of the newest file that was copied into it.
pub(super) fn keep_in(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    newest: SystemTime,
) -> Result<(), WorkspaceError> {
    let dir = Path::new(&workspace.path);
    let git = backend.git_in(workspace, dir)?;
    let asked = |args: &[&str]| -> Result<Run, WorkspaceError> { Ok(git.run(args)?) };
    match asked(&["rev-parse", "--verify", "--quiet", "HEAD"])?.maybe()? {
        Some(commit) => keep(backend, dir, &commit, newest, asked),
        None => Ok(()),
    }
}

fn keep(
    backend: &WorkspaceBackend,
    dir: &Path,
    commit: &str,
    newest: SystemTime,
    asked: impl Fn(&[&str]) -> Result<Run, WorkspaceError>,
) -> Result<(), WorkspaceError> {
    let source = backend.root.as_path();
    if !source.join(".git").exists() || source == dir {
        return Ok(());
    }
    let there = backend.git_at(source)?;
    let ask =
        ["diff", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "-z"];
    let differs = paths(&there.run(ask)?.args([commit, "--"]).patience(git::CHECKOUT).ok()?);
    let others = paths(&there.run(["ls-files", "--others", "--exclude-standard", "-z"])?.ok()?);
    let tracked = paths(&asked(&["ls-files", "-z"])?.ok()?);
    let fresh = SystemTime::now().max(newest + Duration::from_millis(1));
    let mut changed = false;
    for path in &tracked {
        let (here, original) = (dir.join(path), source.join(path));
        let Ok(seen) = fs::symlink_metadata(&here) else { continue };
        let same = fs::symlink_metadata(&original).ok().filter(|original| {
            !differs.contains(path) && original.file_type() == seen.file_type() && original.len() == seen.len()
        });
        let wanted = match same {
            Some(original) => Some((original.mtime(), original.mtime_nsec())).filter(|time| *time != time_of(&seen)),
            None => Some(stamp(fresh)).filter(|_| seen.modified().is_ok_and(|time| time <= newest)),
        };
        if let Some(wanted) = wanted {
            set(&here, wanted)?;
            changed = true;
        }
    }
    let parents = |paths: &BTreeSet<PathBuf>| -> BTreeSet<PathBuf> {
        paths.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect()
    };
    let mut odd = parents(&differs);
    odd.extend(parents(&others));
    let all: BTreeSet<&Path> = tracked.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    // Deepest first, so that a directory's time is set after everything below it.
    for path in all.into_iter().rev().filter(|path| !path.as_os_str().is_empty() && !odd.contains(*path)) {
        let (here, original) = (dir.join(path), source.join(path));
        if let (Ok(seen), Ok(original)) = (fs::symlink_metadata(&here), fs::symlink_metadata(&original))
            && seen.is_dir()
            && original.is_dir()
            && time_of(&seen) != time_of(&original)
        {
            set(&here, time_of(&original))?;
        }
    }
    if changed {
        // Git's index records times, so refresh it.
        asked(&["update-index", "-q", "--refresh"])?.patience(git::CHECKOUT).end()?;
    }
    Ok(())
}

fn time_of(meta: &fs::Metadata) -> (i64, i64) {
    (meta.mtime(), meta.mtime_nsec())
}

fn stamp(time: SystemTime) -> (i64, i64) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()))
}

fn set(path: &Path, (seconds, nanos): (i64, i64)) -> Result<(), WorkspaceError> {
    let flag = UtimensatFlags::NoFollowSymlink;
    let set = utimensat(AT_FDCWD, path, &TimeSpec::UTIME_OMIT, &TimeSpec::new(seconds, nanos), flag);
    set.map_err(|error| lock::io("set the time of", path)(error.into()))
}

fn paths(listed: &[u8]) -> BTreeSet<PathBuf> {
    listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(path_of).collect()
}
