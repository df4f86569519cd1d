//! Bases: read-only checkouts that overlay workspaces share or are copied from. `.bases/COMMIT/` contains `tree`, its
//! `index`, and `sum`, a fingerprint that reveals any change.
//!
//! If this user may mount, a read-only mount protects the tree. Otherwise, and after a reboot, the tree is compared
//! with its fingerprint before it is used, and rebuilt if it differs.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{WorkspaceBackend, WorkspaceError, git, mount, remove, times};
use crate::{git_run::Git, lock};

pub(super) const BASES: &str = ".bases";
/// A base is reused for another commit if at most one in this many files differs.
const ONE_IN: usize = 8;

pub(super) fn tree(base: &Path) -> PathBuf {
    base.join("tree")
}

pub(super) fn index(base: &Path) -> PathBuf {
    base.join("index")
}

/// The base for a commit: an existing one of this or a similar commit, or a new one. `warm` copies build artefacts into
/// a new base and returns the time of the newest.
pub(super) fn provide(
    backend: &WorkspaceBackend,
    dir: &Path,
    commit: &str,
    warm: impl FnOnce(&Path) -> io::Result<Option<SystemTime>>,
) -> Result<String, WorkspaceError> {
    let bases = dir.join(BASES);
    let name = match newest(&bases) {
        _ if bases.join(commit).is_dir() => commit.to_owned(),
        Some(close) if near(backend, &bases.join(&close), &close, commit)? => close,
        _ => commit.to_owned(),
    };
    fit(backend, &bases.join(&name), &name, warm)?;
    Ok(name)
}

/// Ensures that a base exists and is unchanged. Returns whether it had to be rebuilt.
pub(super) fn fit(
    backend: &WorkspaceBackend,
    base: &Path,
    commit: &str,
    warm: impl FnOnce(&Path) -> io::Result<Option<SystemTime>>,
) -> Result<bool, WorkspaceError> {
    let tree = tree(base);
    let whole = |base: &Path| index(base).is_file() && base.join("sum").is_file();
    if mount::is_frozen(&tree) && whole(base) {
        return Ok(false);
    }
    let _turn = lock::RepoLock::wait(&backend.state, &format!("base-{commit}"))?;
    if mount::is_frozen(&tree) && whole(base) {
        return Ok(false);
    }
    let unchanged = match fs::read_to_string(base.join("sum")) {
        Ok(known) => whole(base) && sum(backend.git()?, &tree).is_ok_and(|now| now == known),
        Err(_) => false,
    };
    if !unchanged {
        build(backend, base, commit, warm)?;
    }
    mount::freeze(&tree);
    Ok(!unchanged)
}

/// Builds a base. A changed one is renamed and kept until no workspace uses the commit, because overlays may still be
/// mounted on it.
fn build(
    backend: &WorkspaceBackend,
    base: &Path,
    commit: &str,
    warm: impl FnOnce(&Path) -> io::Result<Option<SystemTime>>,
) -> Result<(), WorkspaceError> {
    let bases = base.parent().unwrap_or(base);
    let new = bases.join(format!(".new-{}", std::process::id()));
    remove::tree(&new)?;
    let (fresh, fresh_index) = (tree(&new), index(&new));
    fs::create_dir_all(&fresh).map_err(lock::io("make", &fresh))?;
    let git = backend.git()?;
    let run = git.run(["read-tree", "-u", "--reset", "--no-recurse-submodules", commit])?;
    run.env("GIT_WORK_TREE", &fresh).env("GIT_INDEX_FILE", &fresh_index).patience(git::CHECKOUT).ok()?;
    let newest = warm(&fresh).map_err(lock::io("fill", &fresh))?;
    times::keep_in_base(backend, &fresh, &fresh_index, commit, newest)?;
    let file = new.join("sum");
    fs::write(&file, sum(git, &fresh)?).map_err(lock::io("write", &file))?;
    if remove::exists(base)? {
        mount::thaw(&tree(base));
        let spoiled = bases.join(format!(".spoiled-{commit}-{}", std::process::id()));
        fs::rename(base, &spoiled).map_err(lock::io("put aside", base))?;
    }
    fs::rename(&new, base).map_err(lock::io("keep", &new))
}

/// A fingerprint of the tree: a hash over the size, times, inode and permissions of every file and directory. Content
/// cannot change without one of these.
fn sum(git: &Git, tree: &Path) -> Result<String, WorkspaceError> {
    let facts = facts(tree).map_err(lock::io("read", tree))?;
    let hash = git.run(["hash-object", "--no-filters", "--stdin"])?.ok_fed(|to| to.write_all(&facts))?;
    Ok(String::from_utf8_lossy(&hash).into_owned())
}

fn facts(tree: &Path) -> io::Result<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut look = vec![tree.to_owned()];
    while let Some(dir) = look.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let (path, meta) = (entry.path(), entry.metadata()?);
            let name = path.strip_prefix(tree).unwrap_or(&path).as_os_str().as_bytes();
            let (time, changed) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
            let size = if meta.is_dir() { 0 } else { meta.len() };
            let facts = format!("{size} {time:?} {changed:?} {} {:o} ", meta.ino(), meta.mode());
            lines.push([facts.as_bytes(), name, b"\0"].concat());
            if meta.is_dir() {
                look.push(path);
            }
        }
    }
    lines.sort();
    Ok(lines.concat())
}

/// The newest base.
fn newest(bases: &Path) -> Option<String> {
    let entries = fs::read_dir(bases).ok()?.flatten();
    let named = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let dated = named.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name())));
    dated.max().map(|(_, name)| name.to_string_lossy().into_owned())
}

/// Whether a base differs from the wanted commit in few files only.
fn near(backend: &WorkspaceBackend, base: &Path, from: &str, to: &str) -> Result<bool, WorkspaceError> {
    let run = backend.git()?.run(["diff-tree", "-r", "--name-only", "-z", from, to])?;
    let ended = run.end()?;
    let different = ended.out.iter().filter(|byte| **byte == 0).count();
    let entry = 90;
    let all = fs::metadata(index(base)).map_or(0, |meta| meta.len()) as usize / entry;
    Ok(ended.code == 0 && different * ONE_IN <= all)
}

/// Removes unused bases except the newest. Returns their number.
pub(super) fn tidy(dir: &Path, used: &[String]) -> Result<usize, WorkspaceError> {
    let bases = dir.join(BASES);
    let last = newest(&bases);
    let Ok(entries) = fs::read_dir(&bases) else { return Ok(0) };
    let mut gone = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let spoiled = name.strip_prefix(".spoiled-").and_then(|rest| rest.split('-').next());
        // Another process is building this base, and has not registered it yet.
        let builder = name.strip_prefix(".new-").filter(|pid| Path::new("/proc").join(pid).exists());
        let stood_on = builder.is_some() || used.iter().any(|used| *used == name || spoiled == Some(used));
        if entry.path().is_dir() && !stood_on && last.as_ref() != Some(&name) {
            mount::thaw(&tree(&entry.path()));
            remove::tree(&entry.path())?;
            gone += 1;
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_change_with_any_file_and_with_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/f"), "one").unwrap();
        let before = facts(dir.path()).unwrap();
        assert_eq!(before, facts(dir.path()).unwrap());
        fs::write(dir.path().join("a/f"), "two").unwrap();
        let after = facts(dir.path()).unwrap();
        assert_ne!(before, after);
        fs::write(dir.path().join("b"), "").unwrap();
        assert_ne!(after, facts(dir.path()).unwrap());
    }
}
