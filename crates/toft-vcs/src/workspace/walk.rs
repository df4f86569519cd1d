//! Walks through a workspace's files, to find what version control does not report and would not restore.
//!
//! Nothing in it is executed or trusted. A nested repository is an ordinary directory that is saved byte for byte.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toft_core::workspace::Left;

use super::{WorkspaceError, snapshot::PathBytes};
use crate::{lock, plain};

/// Directories in which a version control system stores a repository.
const MARKS: [&str; 4] = [".git", ".hg", ".jj", ".sl"];
/// Directories that tools can rebuild.
const REBUILT: [&str; 17] = [
    "target",
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradle",
    ".next",
    ".nuxt",
    ".parcel-cache",
    ".turbo",
    ".cache",
    ".direnv",
];
/// Maximum size of a small ignored directory.
const SMALL_BYTES: u64 = 1 << 20;
const SMALL_FILES: usize = 200;
/// Maximum number of paths recorded as left out; the rest is one entry.
const MOST_LEFT: usize = 200;

/// The directory to which a path is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Root {
    /// The workspace's directory.
    Work,
    /// The git directory of the checkout.
    Own,
}

/// A file, link or directory that is saved as it is, independent of version control.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Raw {
    pub(super) root: Root,
    pub(super) name: PathBytes,
    pub(super) mode: u32,
}

impl Raw {
    pub(super) fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    pub(super) fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Directories that contain a repository, or are one.
    pub(super) repositories: Vec<PathBuf>,
    /// Sockets, pipes and devices.
    pub(super) special: Vec<PathBuf>,
    /// Directories that a checkout would not create: empty ones, and those with other permissions than the workspace.
    pub(super) dirs: Vec<(PathBytes, u32)>,
}

/// Walks through a workspace. `ignored` are directories that git does not enter; in those, bare repositories count too.
pub(super) fn walk(dir: &Path, ignored: &[PathBuf]) -> Result<Walked, WorkspaceError> {
    let mut found = Walked::default();
    let usual = fs::symlink_metadata(dir).map_err(lock::io("look at", dir))?.mode() & 0o7777;
    let mut look = vec![PathBuf::new()];
    while let Some(at) = look.pop() {
        let here = dir.join(&at);
        let top = at.as_os_str().is_empty();
        if !top && (is_marked(&here) || ignored.iter().any(|dir| at.starts_with(dir)) && crate::git::is_git_dir(&here))
        {
            found.repositories.push(at);
            continue;
        }
        let mut count = 0;
        let entries = match fs::read_dir(&here) {
            // It was deleted just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !top => continue,
            entries => entries.map_err(lock::io("read", &here))?,
        };
        for entry in entries {
            let entry = entry.map_err(lock::io("read", &here))?;
            let name = entry.file_name();
            count += 1;
            if top && MARKS.iter().any(|mark| name == *mark) {
                continue;
            }
            let kind = entry.file_type().map_err(lock::io("read", &here))?;
            match () {
                () if kind.is_dir() => look.push(at.join(name)),
                () if kind.is_file() || kind.is_symlink() => {}
                () => found.special.push(at.join(name)),
            }
        }
        let Ok(mode) = fs::symlink_metadata(&here).map(|meta| meta.mode()) else { continue };
        if !top && (count == 0 || mode & 0o7777 != usual) {
            found.dirs.push((PathBytes(at.clone().into_os_string().into_encoded_bytes()), mode & 0o7777));
        }
    }
    found.repositories.sort();
    found.special.sort();
    found.dirs.sort();
    Ok(found)
}

/// A non-empty directory below from which this user cannot delete, and whose permissions this user cannot change: a
/// removal would stop half-way.
pub(super) fn undeletable(dir: &Path) -> Option<PathBuf> {
    let me = own_uid();
    let mut look = vec![dir.to_owned()];
    while let Some(at) = look.pop() {
        let Ok(meta) = fs::symlink_metadata(&at) else { continue };
        let mine = me == 0 || meta.uid() == me;
        match fs::read_dir(&at) {
            Ok(entries) => {
                let mut entries = entries.flatten().peekable();
                // Files of other users in a sticky directory can only be deleted by their owners.
                let sticky = meta.mode() & 0o1000 != 0 && !mine;
                if entries.peek().is_some() && !mine && (sticky || !may_write(&at)) {
                    return Some(at);
                }
                look.extend(
                    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
                );
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) if mine => {}
            Err(_) => return Some(at),
        }
    }
    None
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn may_write(dir: &Path) -> bool {
    use nix::unistd::AccessFlags;
    nix::unistd::access(dir, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// Whether a directory contains a repository.
pub(super) fn is_marked(dir: &Path) -> bool {
    MARKS.iter().any(|mark| fs::symlink_metadata(dir.join(mark)).is_ok())
}

/// Whether tools can rebuild a directory: by its name, or by a `CACHEDIR.TAG`.
pub(super) fn is_rebuilt(dir: &Path) -> bool {
    let named = dir.file_name().is_some_and(|name| REBUILT.iter().any(|known| name == *known));
    named || dir.join("CACHEDIR.TAG").is_file()
}

/// The files of an ignored directory that is small enough to be rescued; `None` if it is large, can be rebuilt, is a
/// repository, or contains anything but files, links and directories.
pub(super) fn small(dir: &Path, below: &Path) -> Option<Vec<PathBuf>> {
    let (mut files, mut bytes, mut entries, mut holds_one) = (Vec::new(), 0, 0, false);
    let mut look = vec![below.to_owned()];
    while let Some(at) = look.pop() {
        let here = dir.join(&at);
        // A nested repository is saved separately.
        if at != below && is_marked(&here) {
            holds_one = true;
            continue;
        }
        if is_rebuilt(&here)
            || is_marked(&here)
            || at.file_name().is_some_and(|name| MARKS.iter().any(|mark| name == *mark))
        {
            return None;
        }
        for entry in fs::read_dir(&here).ok()? {
            let entry = entry.ok()?;
            let meta = entry.metadata().ok()?;
            entries += 1;
            match () {
                () if meta.is_dir() => look.push(at.join(entry.file_name())),
                () if meta.is_file() || meta.is_symlink() => {
                    bytes += meta.len();
                    files.push(at.join(entry.file_name()));
                }
                () => return None,
            }
            if bytes > SMALL_BYTES || entries > SMALL_FILES {
                return None;
            }
        }
    }
    // A directory with only a nested repository is handled with that repository.
    (!holds_one || !files.is_empty()).then_some(files)
}

/// Adds everything at and below `name`: directories before their content.
pub(super) fn raw(root: Root, base: &Path, name: &Path, into: &mut Vec<Raw>) -> Result<(), WorkspaceError> {
    let mut look = vec![name.to_owned()];
    while let Some(at) = look.pop() {
        let here = base.join(&at);
        let meta = match fs::symlink_metadata(&here) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(lock::io("look at", &here)(cause)),
        };
        if meta.is_dir() {
            for entry in fs::read_dir(&here).map_err(lock::io("read", &here))? {
                look.push(at.join(entry.map_err(lock::io("read", &here))?.file_name()));
            }
        } else if !meta.is_file() && !meta.is_symlink() {
            continue;
        }
        into.push(Raw { root, name: PathBytes(at.into_os_string().into_encoded_bytes()), mode: meta.mode() });
    }
    Ok(())
}

/// Size of everything at and below a path.
pub(super) fn bytes(path: &Path) -> u64 {
    let mut sum = 0;
    let mut look = vec![path.to_owned()];
    while let Some(at) = look.pop() {
        let Ok(meta) = fs::symlink_metadata(&at) else { continue };
        match meta.is_dir() {
            true => look.extend(fs::read_dir(&at).into_iter().flatten().flatten().map(|entry| entry.path())),
            false => sum += meta.len(),
        }
    }
    sum
}

/// The paths with their sizes; if there are very many, the largest.
pub(super) fn left(dir: &Path, paths: impl IntoIterator<Item = PathBuf>) -> Vec<Left> {
    let mut all: Vec<Left> = paths
        .into_iter()
        .map(|path| Left { bytes: bytes(&dir.join(&path)), path: path.to_string_lossy().into_owned() })
        .collect();
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    if all.len() > MOST_LEFT {
        let rest = all.split_off(MOST_LEFT);
        all.push(Left { path: format!("{} more", rest.len()), bytes: rest.iter().map(|left| left.bytes).sum() });
    }
    all
}

/// Every file of a workspace, except the version control system's own at the top.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, WorkspaceError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(lock::io("read", dir))? {
        let name = PathBuf::from(entry.map_err(lock::io("read", dir))?.file_name());
        if !MARKS.iter().any(|mark| name == Path::new(mark)) {
            let mut below = Vec::new();
            raw(Root::Work, dir, &name, &mut below)?;
            let files = below.into_iter().filter(|raw| !raw.is_dir());
            found.extend(files.map(|raw| super::survey::path_of(&raw.name.0)));
        }
    }
    Ok(found)
}

/// Of files that a version control system without rescues does not store: those that exist only here, and artefacts.
/// Files that `source` has too are left out.
pub(super) fn only_here(dir: &Path, source: &Path, names: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut only, mut artefacts) = (Vec::new(), std::collections::BTreeSet::new());
    for name in names {
        let built = name.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        if let Some(built) = built.filter(|above| is_rebuilt(&dir.join(above))).last() {
            artefacts.insert(built.to_owned());
            continue;
        }
        let (here, there) = (dir.join(&name), source.join(&name));
        let length = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.len()).ok();
        let copied = length(&here) == length(&there)
            && match fs::read_link(&here) {
                Ok(to) => to == there || fs::read_link(&there).is_ok_and(|other| to == other),
                Err(_) => plain::read(&here).is_ok_and(|bytes| plain::read(&there).is_ok_and(|same| bytes == same)),
            };
        let linked = fs::read_link(&here).is_ok_and(|to| to == there);
        match length(&here) {
            _ if copied || linked => {}
            Some(bytes) if bytes > SMALL_BYTES => drop(artefacts.insert(name)),
            _ => only.push(name),
        }
    }
    (only, artefacts.into_iter().collect())
}

/// Why a workspace must stay whose version control system has no rescues: files and repositories that exist only in it.
pub(super) fn cannot_go(vcs: &str, only: &[PathBuf], repositories: &[PathBuf]) -> Vec<String> {
    let mut stuck: Vec<String> =
        repositories.iter().map(|path| format!("{} is a repository of its own", path.display())).collect();
    if let Some(first) = only.first() {
        let more = if only.len() > 1 { format!(" and {} more", only.len() - 1) } else { String::new() };
        stuck.push(format!("{}{more} is ignored and only here, which for {vcs} cannot be put away", first.display()));
    }
    stuck
}
