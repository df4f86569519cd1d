//! A snapshot of a git workspace: everything that a rescue must contain, except the bytes.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use serde::{Deserialize, Serialize};
use toft_core::workspace::{Left, Workspace, WorkspaceKind};

use super::{
    WorkspaceBackend, WorkspaceError,
    survey::{self, Status, path_of},
    walk::{self, Raw, Root},
};
use crate::{git_run::Git, lock::io};

/// A git directory with more files than this is not one of a checkout.
const MOST_OWN: usize = 5_000;

/// The content of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Snapshot {
    /// The commit that is checked out; none before the first commit.
    pub(super) head: Option<String>,
    pub(super) branch: Option<String>,
    /// Files that differ from the commit.
    pub(super) files: Vec<SnapshotFile>,
    /// Tracked files that do not exist.
    pub(super) deleted: Vec<PathBytes>,
    /// Tracked files with the committed content, but other permissions.
    pub(super) modes: Vec<(PathBytes, u32)>,
    /// Files in the git directory of this checkout.
    pub(super) own: Vec<SnapshotFile>,
    /// An index exists.
    pub(super) index: bool,
    /// Objects that only the index references.
    pub(super) staged: Vec<String>,
    /// Commits that would be lost with the directory: from its reflogs, and of operations in progress.
    pub(super) commits: Vec<String>,
    /// All refs of a clone; of a worktree, those that belong to it.
    pub(super) refs: Vec<(String, String)>,
    /// Only for a clone: its stashes, newest first.
    pub(super) stashes: Vec<(String, String)>,
    /// Only for a clone: its symbolic refs.
    #[serde(default)]
    pub(super) symrefs: Vec<(String, String)>,
    /// Only for a clone: objects in its reflogs that are not commits.
    #[serde(default)]
    pub(super) objects: Vec<String>,
    /// Entries that are saved as they are: nested repositories, submodules with work of their own and, on request,
    /// ignored files.
    #[serde(default)]
    pub(super) raw: Vec<Raw>,
    /// Directories that a checkout would not create, or with other permissions.
    #[serde(default)]
    pub(super) dirs: Vec<(PathBytes, u32)>,
    /// Large ignored files are included.
    #[serde(default)]
    pub(super) all_ignored: bool,
    /// The workspace's directory was moved or deleted by hand, so there are no files.
    #[serde(default)]
    pub(super) missing: bool,
    /// A restore of the workspace was interrupted.
    #[serde(default)]
    pub(super) torn: bool,
    /// The paths of the workspace and of its git directory; none for a clone.
    #[serde(default)]
    pub(super) places: Option<(PathBytes, PathBytes)>,
    /// Files that the rescue does not contain.
    #[serde(default)]
    pub(super) left: Vec<Left>,
}

/// Name of the marker file of a workspace that is being restored.
pub(super) const RESTORING: &str = "restoring";

/// A file with its type and permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SnapshotFile {
    pub(super) name: PathBytes,
    pub(super) mode: u32,
}

impl Snapshot {
    /// Paths in the rescue that are symbolic links.
    pub(super) fn links(&self) -> std::collections::BTreeSet<Vec<u8>> {
        let links = |place: &'static str, files: &[SnapshotFile]| {
            let links = files.iter().filter(|file| file.link());
            links.map(|file| [place.as_bytes(), &file.name.0].concat()).collect::<Vec<_>>()
        };
        links("work/", &self.files).into_iter().chain(links("own/", &self.own)).collect()
    }
}

impl SnapshotFile {
    pub(super) fn link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }
}

/// A path as bytes. As text, `\` and bytes that are not UTF-8 are written as `\xNN`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct PathBytes(pub(super) Vec<u8>);

impl From<PathBytes> for String {
    fn from(name: PathBytes) -> Self {
        let mut text = Self::new();
        for chunk in name.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => text.push_str("\\x5c"),
                    other => text.push(other),
                }
            }
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
        }
        text
    }
}

impl TryFrom<String> for PathBytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = text.split("\\x");
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let (code, rest) = part.split_at_checked(2).ok_or("a path ends in the middle of a byte")?;
            bytes.push(u8::from_str_radix(code, 16).map_err(|error| error.to_string())?);
            bytes.extend(rest.as_bytes());
        }
        Ok(Self(bytes))
    }
}

/// Takes a snapshot of a workspace at `dir`; with `all_ignored`, including large ignored files.
pub(super) fn take(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    dir: &Path,
    all_ignored: bool,
) -> Result<Snapshot, WorkspaceError> {
    let git = backend.inside(workspace, dir)?;
    let own = git.git_dir();
    let status = survey::status(&git)?;
    let mut snapshot = Snapshot { all_ignored, ..of_own(backend, workspace, &git, own, &status)? };
    let counted = status.staged.iter().chain(&status.changed).chain(&status.untracked);
    for name in counted.chain(&status.ignored).chain(&status.small) {
        let path = dir.join(path_of(name));
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => snapshot.deleted.push(PathBytes(name.clone())),
            Ok(meta) if !meta.is_file() && !meta.is_symlink() => {
                let why = format!("{} is neither a file nor a link", String::from_utf8_lossy(name));
                return Err(WorkspaceError::Stays { why });
            }
            Ok(meta) => snapshot.files.push(SnapshotFile { name: PathBytes(name.clone()), mode: meta.mode() }),
            Err(error) if gone(&error) => snapshot.deleted.push(PathBytes(name.clone())),
            Err(cause) => return Err(io("look at", &path)(cause)),
        }
    }
    snapshot.deleted.extend(status.deleted.iter().cloned().map(PathBytes));
    snapshot.modes = odd_modes(dir, &status, &snapshot);
    beyond_git(&mut snapshot, dir, own, &status)?;
    snapshot.files.sort_by(|a, b| a.name.cmp(&b.name));
    snapshot.files.dedup();
    snapshot.deleted.sort();
    snapshot.deleted.dedup();
    Ok(snapshot)
}

/// Files that a rescue of the directory would not contain, with sizes.
pub(super) fn leaves(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    dir: &Path,
) -> Result<Vec<Left>, WorkspaceError> {
    let git = backend.inside(workspace, dir)?;
    let status = survey::status(&git)?;
    let mut snapshot = Snapshot::default();
    beyond_git(&mut snapshot, dir, git.git_dir(), &status)?;
    Ok(walk::left(dir, snapshot.left.iter().map(|left| std::path::PathBuf::from(&left.path))))
}

/// Takes a snapshot of git's data of a worktree whose directory does not exist.
pub(super) fn take_missing(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    own: &Path,
) -> Result<Snapshot, WorkspaceError> {
    let git = backend.git_without_files(own)?;
    let mut status = Status {
        head: git.run(["rev-parse", "--verify", "--quiet", "HEAD"])?.maybe()?,
        branch: git.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?.maybe()?,
        ..Status::default()
    };
    survey::list_index(&git, &mut status)?;
    let mut snapshot = Snapshot { missing: true, ..of_own(backend, workspace, &git, own, &status)? };
    walk::raw(Root::Own, own, Path::new("modules"), &mut snapshot.raw)?;
    snapshot.raw.sort();
    Ok(snapshot)
}

/// The part of a snapshot that comes from the git directory of the checkout.
fn of_own(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    git: &Git,
    own: &Path,
    status: &Status,
) -> Result<Snapshot, WorkspaceError> {
    let clone = workspace.kind == WorkspaceKind::Clone;
    let logs = survey::logs(backend, workspace, own);
    let bytes = |path: &Path| PathBytes(path.as_os_str().as_encoded_bytes().to_vec());
    let mut snapshot = Snapshot {
        head: status.head.clone(),
        branch: status.branch.clone(),
        own: own_files(own, clone)?,
        index: own.join("index").is_file(),
        staged: staged(git, status)?,
        commits: commits(git, own, &logs)?,
        torn: backend.mark(workspace, RESTORING).exists(),
        places: (!clone).then(|| (bytes(Path::new(&workspace.path)), bytes(own))),
        ..Snapshot::default()
    };
    (snapshot.refs, snapshot.symrefs) = refs(git, clone)?;
    if clone {
        snapshot.stashes = survey::stashes(git, workspace, None)?;
        snapshot.objects = no_commits(git, &survey::logged(&logs)?)?;
    }
    Ok(snapshot)
}

/// Adds what git does not report: nested repositories, submodules, directories, and the files that are not saved.
fn beyond_git(snapshot: &mut Snapshot, dir: &Path, own: &Path, status: &Status) -> Result<(), WorkspaceError> {
    let ignored: Vec<_> = status.artefacts.iter().map(|path| path_of(path)).collect();
    let mut walked = walk::walk(dir, &ignored)?;
    let modules: std::collections::BTreeSet<_> = status.submodules.iter().map(|path| path_of(path)).collect();
    let submodules = survey::submodules(dir, own, status)?;
    let mut left = std::mem::take(&mut walked.special);
    if submodules.work.is_empty() {
        walked.repositories.retain(|path| !modules.contains(path));
        left.extend(submodules.artefacts);
    } else {
        walk::raw(Root::Own, own, Path::new("modules"), &mut snapshot.raw)?;
    }
    let large = ignored.into_iter().chain(status.large.iter().map(|path| path_of(path)));
    let (mut kept, mut others): (Vec<_>, Vec<_>) = large.partition(|_| snapshot.all_ignored);
    others.retain(|path| !walked.repositories.iter().any(|repository| path.starts_with(repository)));
    left.extend(others);
    kept.retain(|path| !walked.repositories.iter().any(|repository| path.starts_with(repository)));
    for path in walked.repositories.iter().chain(&kept) {
        walk::raw(Root::Work, dir, path, &mut snapshot.raw)?;
    }
    snapshot.raw.sort();
    snapshot.raw.dedup();
    let goes = |name: &PathBytes| left.iter().any(|gone| path_of(&name.0).starts_with(gone));
    snapshot.dirs = walked.dirs.into_iter().filter(|(name, _)| !goes(name)).collect();
    snapshot.left = left.into_iter().map(|path| Left { path: path.to_string_lossy().into_owned(), bytes: 0 }).collect();
    Ok(())
}

/// Those of the objects that exist and are not commits.
fn no_commits(git: &Git, oids: &[String]) -> Result<Vec<String>, WorkspaceError> {
    if oids.is_empty() {
        return Ok(Vec::new());
    }
    let ask: String = oids.iter().map(|oid| format!("{oid}\n")).collect();
    let said = git.run(["cat-file", "--batch-check=%(objecttype) %(objectname)"])?;
    let said = said.ok_fed(|to| to.write_all(ask.as_bytes()))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let others = said.lines().filter_map(|line| line.split_once(' '));
    let others = others.filter(|(kind, _)| matches!(*kind, "blob" | "tree" | "tag"));
    Ok(others.map(|(_, oid)| oid.to_owned()).collect())
}

/// Whether a parent directory of `path` is a symbolic link, so that the path leads elsewhere.
pub fn behind_link(dir: &Path, path: &Path) -> bool {
    path.ancestors().skip(1).any(|part| !part.as_os_str().is_empty() && dir.join(part).is_symlink())
}

/// Whether a path does not exist, or one of its parent directories is now a file.
fn gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Tracked files with permissions that a checkout would not set.
fn odd_modes(dir: &Path, status: &Status, snapshot: &Snapshot) -> Vec<(PathBytes, u32)> {
    let changed: std::collections::BTreeSet<_> = snapshot.files.iter().map(|file| &file.name.0).collect();
    let odd = |(mode, _, path): &(u32, String, Vec<u8>)| {
        let usual = match mode {
            0o100_755 => 0o755,
            0o100_644 => 0o644,
            _ => return None,
        };
        if behind_link(dir, &path_of(path)) {
            return None;
        }
        let meta = fs::symlink_metadata(dir.join(path_of(path))).ok().filter(|meta| meta.is_file())?;
        let mode = meta.mode() & 0o7777;
        (mode != usual && !changed.contains(path)).then(|| (PathBytes(path.clone()), mode))
    };
    let mut modes: Vec<_> = status.index.iter().filter_map(odd).collect();
    modes.sort();
    modes.dedup();
    modes
}

/// Objects in the index that are not in the commit.
fn staged(git: &Git, status: &Status) -> Result<Vec<String>, WorkspaceError> {
    let committed = match &status.head {
        Some(head) => git.run(["ls-tree", "-r", "-z", "--full-tree", "--format=%(objectname)", head])?.ok()?,
        None => Vec::new(),
    };
    let committed: std::collections::BTreeSet<&[u8]> = committed.split(|byte| *byte == 0).collect();
    let files = status.index.iter().filter(|(mode, ..)| *mode != 0o160_000).map(|(_, oid, _)| oid);
    let mut staged: Vec<_> = files.filter(|oid| !committed.contains(oid.as_bytes())).cloned().collect();
    staged.sort();
    staged.dedup();
    Ok(staged)
}

/// Commits that would be lost with the directory.
fn commits(git: &Git, own: &Path, logs: &[std::path::PathBuf]) -> Result<Vec<String>, WorkspaceError> {
    const FILES: [&str; 12] = [
        "ORIG_HEAD",
        "MERGE_HEAD",
        "MERGE_AUTOSTASH",
        "CHERRY_PICK_HEAD",
        "REVERT_HEAD",
        "REBASE_HEAD",
        "rebase-merge/orig-head",
        "rebase-merge/onto",
        "rebase-merge/autostash",
        "rebase-apply/orig-head",
        "rebase-apply/onto",
        "rebase-apply/autostash",
    ];
    let texts = FILES.iter().filter_map(|file| crate::read(&own.join(file)).ok().flatten());
    let named: Vec<String> = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut commits = survey::dropped(git, own, logs)?;
    for name in named {
        let name = format!("{}^{{commit}}", name.trim());
        commits.extend(git.run(["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?.maybe()?);
    }
    commits.sort();
    commits.dedup();
    Ok(commits)
}

/// Pairs of a ref and its target.
type Refs = Vec<(String, String)>;

/// Refs that belong to a checkout: those that point to objects, and symbolic refs.
fn refs(git: &Git, clone: bool) -> Result<(Refs, Refs), WorkspaceError> {
    let places: &[&str] = if clone { &["refs"] } else { &survey::OF_A_WORKTREE };
    let run = git.run(["for-each-ref", "--format=%(refname) %(objectname) %(symref)"])?.args(places);
    let (mut plain, mut symbolic) = (Vec::new(), Vec::new());
    for line in run.text()?.lines().filter(|line| !line.starts_with("refs/toft/")) {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        match words.as_slice() {
            // A stash has more entries than its ref; they are saved from its reflog.
            [name, ..] if name == "refs/stash" => {}
            [name, oid, to] if to.is_empty() => plain.push((name.clone(), oid.clone())),
            [name, _, to] => symbolic.push((name.clone(), to.clone())),
            [name, oid] => plain.push((name.clone(), oid.clone())),
            _ => {}
        }
    }
    Ok((plain, symbolic))
}

/// Files in the git directory of one checkout that a restore does not recreate and that are not saved in another form.
fn own_files(own: &Path, clone: bool) -> Result<Vec<SnapshotFile>, WorkspaceError> {
    const ANEW: [&str; 10] =
        ["HEAD", "index", "commondir", "gitdir", "locked", "modules", "toft", "FETCH_HEAD", "reftable", "refs"];
    const OF_A_REPOSITORY: [&str; 7] =
        ["objects", "refs", "packed-refs", "worktrees", "shallow", "branches", "description"];
    let mut found = Vec::new();
    let mut look = vec![std::path::PathBuf::new()];
    while let Some(at) = look.pop() {
        let dir = own.join(&at);
        for entry in fs::read_dir(&dir).map_err(io("read", &dir))? {
            let entry = entry.map_err(io("read", &dir))?;
            let name = entry.file_name();
            let text = name.to_string_lossy();
            let top = at.as_os_str().is_empty();
            let elsewhere = ANEW.contains(&&*text) || clone && OF_A_REPOSITORY.contains(&&*text);
            if top && (elsewhere || text.starts_with("fast_import_crash_"))
                || text.ends_with(".lock")
                || text.ends_with(".sample")
            {
                continue;
            }
            let path = at.join(&name);
            match entry.file_type().map_err(io("read", &dir))? {
                kind if kind.is_dir() => look.push(path),
                kind if kind.is_file() || kind.is_symlink() => {
                    let mode = entry.metadata().map_err(io("read", &dir))?.mode();
                    found.push(SnapshotFile { name: PathBytes(path.into_os_string().into_encoded_bytes()), mode });
                }
                _ => {}
            }
        }
        if found.len() > MOST_OWN {
            return Err(WorkspaceError::Stays { why: format!("{} holds more files than it should", own.display()) });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_text_and_read_back_byte_for_byte() {
        for bytes in [&b"plain"[..], b"sp ace/\xc3\xa9", b"\xff\xfe\\x41\\", b"a\nb\x80", b"\\"] {
            let name = PathBytes(bytes.to_vec());
            let text = String::from(name.clone());
            assert_eq!(PathBytes::try_from(text), Ok(name));
        }
        assert!(PathBytes::try_from("\\x4".to_owned()).is_err());
    }
}
