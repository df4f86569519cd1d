//! Rescues: saves the whole content of a git workspace as one commit below `refs/toft/rescue/`, and verifies it.
//!
//! `git fast-import` writes the commit: raw bytes without filters, directly into a pack, so that a concurrent garbage
//! collection cannot delete a part of it.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use toft_core::{
    time::Timestamp,
    workspace::{Left, Workspace, WorkspaceKind},
};

use super::{
    WorkspaceBackend, WorkspaceError,
    git::fetch,
    rescue_content::verify,
    snapshot::{self, Snapshot, SnapshotFile},
    survey::path_of,
    walk::{self, Raw, Root},
};
use crate::{command::RunError, git_run::Git, plain};

/// Prefix of rescue refs.
const PLACE: &str = "refs/toft/rescue";
/// Number of attempts if the workspace changes during the rescue.
const TRIES: usize = 5;
/// Time limit for writing or reading a rescue.
pub(super) const PATIENCE: Duration = Duration::from_secs(3_600);

/// The file in the rescue commit that describes everything besides file content.
pub(super) const MANIFEST: &str = "manifest.json";

/// The workspace to rescue: its directory, if that exists, and its git directory.
pub(super) struct RescueSource {
    pub(super) dir: Option<PathBuf>,
    pub(super) own: PathBuf,
}

impl RescueSource {
    /// The source for a workspace at `dir`.
    pub(super) fn at(backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Result<Self, WorkspaceError> {
        Ok(Self { own: backend.git_in(workspace, dir)?.git_dir().to_owned(), dir: Some(dir.to_owned()) })
    }

    fn git(&self, backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Git, WorkspaceError> {
        match &self.dir {
            Some(dir) => backend.git_in(workspace, dir),
            None => backend.git_without_files(&self.own),
        }
    }

    pub(super) fn look(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        all_ignored: bool,
    ) -> Result<Snapshot, WorkspaceError> {
        match &self.dir {
            Some(dir) => snapshot::take(backend, workspace, dir, all_ignored),
            None => snapshot::take_missing(backend, workspace, &self.own),
        }
    }

    /// The path for messages.
    pub(super) fn shown(&self) -> &Path {
        self.dir.as_deref().unwrap_or(&self.own)
    }

    /// The path of an entry that is saved as it is.
    pub(super) fn raw(&self, raw: &Raw) -> PathBuf {
        let base = match raw.root {
            Root::Work => self.dir.as_deref().unwrap_or(&self.own),
            Root::Own => &self.own,
        };
        base.join(path_of(&raw.name.0))
    }
}

/// A rescue that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rescued {
    pub commit: String,
    /// A description of its content.
    pub holds: String,
    /// Files that it does not contain.
    pub left: Vec<Left>,
    /// The workspace was being restored when it was rescued, so the content is incomplete.
    pub torn: bool,
}

/// Returns the last rescue if it is still complete; otherwise writes a new one.
pub(super) fn ensure(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    source: &RescueSource,
    all_ignored: bool,
) -> Result<Rescued, WorkspaceError> {
    let known = all(backend, Some(workspace))?.pop();
    match known.map(|known| verify(backend, workspace, source, &known.commit)) {
        Some(Ok((known, has_ignored))) if has_ignored || !all_ignored => Ok(known),
        _ => rescue(backend, workspace, source, all_ignored),
    }
}

/// Writes a rescue and verifies it.
pub(super) fn rescue(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    source: &RescueSource,
    all_ignored: bool,
) -> Result<Rescued, WorkspaceError> {
    let mut failed = None;
    for _ in 0..TRIES {
        let mut snapshot = source.look(backend, workspace, all_ignored)?;
        if let Some(dir) = &source.dir {
            snapshot.left = walk::left(dir, snapshot.left.iter().map(|left| PathBuf::from(&left.path)));
        }
        let done = put_away(backend, workspace, source, &snapshot)
            .and_then(|commit| verify(backend, workspace, source, &commit));
        match done {
            Ok((rescued, _)) => return Ok(rescued),
            // Another attempt does not help if the disk is full.
            Err(error) if is_full(&error) => return Err(error),
            // The workspace changed during the rescue.
            Err(
                error @ (WorkspaceError::Unverified { .. }
                | WorkspaceError::Io { .. }
                | WorkspaceError::Run(RunError::Failed { .. })),
            ) => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failed.unwrap_or_else(|| WorkspaceError::Busy { what: workspace.name.clone() }))
}

fn is_full(error: &WorkspaceError) -> bool {
    match error {
        WorkspaceError::Io { cause, .. } => cause.kind() == io::ErrorKind::StorageFull,
        WorkspaceError::Run(RunError::Failed { said, .. }) => {
            said.contains("Out of diskspace") || said.contains("No space left on device")
        }
        _ => false,
    }
}

/// Describes the content of a rescue.
pub(super) fn holds(snapshot: &Snapshot) -> String {
    let nested = snapshot.raw.iter().filter(|raw| path_of(&raw.name.0).ends_with(".git")).count();
    let kept = snapshot.raw.iter().filter(|raw| !raw.is_dir()).count();
    let counted = [
        (snapshot.files.len(), "files"),
        (snapshot.deleted.len(), "deletions"),
        (snapshot.staged.len(), "staged contents"),
        (snapshot.commits.len(), "commits of its log and operations"),
        (snapshot.refs.len() + snapshot.symrefs.len(), "refs"),
        (snapshot.stashes.len(), "stashes"),
        (nested, "repositories inside"),
        (kept, "files kept as they are"),
    ];
    let mut words: Vec<String> =
        counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if snapshot.index {
        words.push("the index".to_owned());
    }
    if snapshot.missing {
        words.push("no files: its directory was not there".to_owned());
    }
    if snapshot.torn {
        words.push("a restore that had not come to its end".to_owned());
    }
    words.join(", ")
}

fn put_away(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    source: &RescueSource,
    snapshot: &Snapshot,
) -> Result<String, WorkspaceError> {
    let git = source.git(backend, workspace)?;
    let repository = backend.git()?;
    let name = next_name([repository, &git], workspace)?;
    let mut trouble = None;
    let run = git.run(["fast-import", "--quiet", "--done"])?.patience(PATIENCE);
    let run = run.ok_fed(|to| {
        let told = tell(to, &name, workspace, source, snapshot);
        trouble = told.as_ref().err().map(|error| (error.kind(), error.to_string()));
        told
    });
    match trouble.filter(|_| run.is_err()) {
        Some((io::ErrorKind::PermissionDenied, why)) => return Err(WorkspaceError::Stays { why }),
        Some((_, what)) => return Err(WorkspaceError::Unverified { path: source.shown().to_owned(), what }),
        None => {}
    }
    run.inspect_err(|error| sweep_up(backend, source, error))?;
    match (workspace.kind, &source.dir) {
        (WorkspaceKind::Clone, Some(_)) => {
            // Fetch all refs of the clone, whatever they point to: tags and notes may not point to commits.
            let place = refs_of(&name);
            let made = git.run(["rev-parse", "--verify", &name])?.text()?;
            let mut refs = vec![format!("+{made}:{name}"), format!("+refs/*:{place}/*"), "^refs/toft/*".to_owned()];
            refs.extend(snapshot.objects.iter().map(|oid| format!("+{oid}:{place}/logged/{oid}")));
            fetch(repository, git.repository(), refs.iter().map(String::as_str))?;
            git.run(["update-ref", "-d", &name])?.ok()?;
        }
        _ => {
            let place = refs_of(&name);
            let refs = snapshot.refs.iter().filter_map(|(name, oid)| Some((name.strip_prefix("refs/")?, oid)));
            let lines: String = refs.map(|(rest, oid)| format!("update {place}/{rest} {oid}\n")).collect();
            update_refs(repository, &lines)?;
        }
    }
    Ok(repository.run(["rev-parse", "--verify", &name])?.text()?)
}

/// Deletes temporary files that a failed git left and names in its message: a partial pack and a crash report.
fn sweep_up(backend: &WorkspaceBackend, source: &RescueSource, error: &RunError) {
    let RunError::Failed { said, .. } = error else { return };
    // Git may print the objects directory with links resolved.
    let whole = |dir: &Path| fs::canonicalize(dir).ok();
    let packs = [&backend.common_dir, &source.own].map(|dir| whole(&dir.join("objects").join("pack")));
    for word in said.split([' ', '\'']) {
        let path = Path::new(word);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let in_packs = path.parent().and_then(whole).is_some_and(|dir| packs.contains(&Some(dir)));
        let left = in_packs && name.starts_with("tmp_pack_")
            || path.parent() == Some(&source.own) && name.starts_with("fast_import_crash_");
        if left {
            // Otherwise git's garbage collection deletes it.
            let _ = fs::remove_file(path);
        }
    }
}

/// Updates refs in one transaction.
pub(super) fn update_refs(git: &Git, lines: &str) -> Result<(), WorkspaceError> {
    if !lines.is_empty() {
        git.run(["update-ref", "--stdin"])?.ok_fed(|to| to.write_all(lines.as_bytes()))?;
    }
    Ok(())
}

/// Prefix of the refs that belong to a rescue.
pub(super) fn refs_of(name: &str) -> String {
    name.replacen(PLACE, "refs/toft/rescued", 1)
}

/// The next unused rescue name of a workspace, in the repository and in the workspace's own clone, where an interrupted
/// rescue may have left one.
fn next_name(places: [&Git; 2], workspace: &Workspace) -> Result<String, WorkspaceError> {
    let place = format!("{PLACE}/{}", workspace.id);
    let mut last = 0;
    for git in places {
        let listed = git.run(["for-each-ref", "--format=%(refname:lstrip=4)", &place])?.text()?;
        last = listed.lines().filter_map(|line| line.parse::<u32>().ok()).fold(last, u32::max);
    }
    Ok(format!("{place}/{}", last + 1))
}

/// A rescue in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescue {
    /// The workspace's id.
    pub workspace: String,
    /// The number among the rescues of the workspace.
    pub number: u32,
    pub commit: String,
    pub made: Timestamp,
    /// Size of the files before compression.
    pub bytes: u64,
    /// A description of its content.
    pub holds: String,
    /// A description of what it does not contain.
    pub left: String,
}

impl Rescue {
    /// A rescue of which only the commit is known.
    pub(super) fn plain(workspace: &Workspace, commit: &str) -> Self {
        Self {
            workspace: workspace.id.to_string(),
            number: 1,
            commit: commit.to_owned(),
            made: workspace.used,
            bytes: 0,
            holds: String::new(),
            left: String::new(),
        }
    }
}

const BYTES: &str = "Bytes: ";
const HOLDS: &str = "Holds: ";
const LEFT: &str = "Left: ";

/// The rescues of one workspace, or of all, oldest first.
pub(super) fn all(backend: &WorkspaceBackend, workspace: Option<&Workspace>) -> Result<Vec<Rescue>, WorkspaceError> {
    let place = workspace.map_or_else(|| PLACE.to_owned(), |workspace| format!("{PLACE}/{}", workspace.id));
    let format = "--format=%(refname:lstrip=3) %(objectname) %(committerdate:unix)%0a%(contents:body)%00";
    let listed = backend.git()?.run(["for-each-ref", format, &place])?.ok()?;
    let mut all = Vec::new();
    for entry in String::from_utf8_lossy(&listed).split('\0') {
        let mut lines = entry.trim_start().lines();
        let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
        let [name, commit, made] = words[..] else { continue };
        let Some((id, number)) = name.split_once('/') else { continue };
        let Ok(number) = number.parse() else { continue };
        let said: Vec<&str> = lines.collect();
        let of = |key: &str| said.iter().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned();
        all.push(Rescue {
            workspace: id.to_owned(),
            number,
            commit: commit.to_owned(),
            made: Timestamp(made.parse::<i64>().unwrap_or_default().saturating_mul(1_000)),
            bytes: of(BYTES).parse().unwrap_or_default(),
            holds: of(HOLDS),
            left: of(LEFT),
        });
    }
    all.sort_by(|a, b| (a.made, &a.workspace, a.number).cmp(&(b.made, &b.workspace, b.number)));
    Ok(all)
}

/// Deletes a rescue and its refs. Git's garbage collection deletes the objects later.
pub(super) fn delete(backend: &WorkspaceBackend, rescue: &Rescue) -> Result<(), WorkspaceError> {
    let git = backend.git()?;
    let name = format!("{PLACE}/{}/{}", rescue.workspace, rescue.number);
    let beside = git.run(["for-each-ref", "--format=delete %(refname)", &refs_of(&name)])?.text()?;
    let lines = format!("{beside}\ndelete {name} {}\n", rescue.commit);
    update_refs(git, lines.trim_start())
}

/// Size of the files in a rescue.
fn bytes_of(source: &RescueSource, snapshot: &Snapshot) -> u64 {
    let size = |path: PathBuf| fs::symlink_metadata(path).map_or(0, |meta| meta.len());
    let dir = source.dir.as_deref().unwrap_or(&source.own);
    let files = snapshot.files.iter().map(|file| size(dir.join(path_of(&file.name.0))));
    let own = snapshot.own.iter().map(|file| size(source.own.join(path_of(&file.name.0))));
    let raw = snapshot.raw.iter().filter(|raw| !raw.is_dir()).map(|raw| size(source.raw(raw)));
    files.chain(own).chain(raw).sum::<u64>() + size(source.own.join("index"))
}

/// Writes the input for `git fast-import`.
fn tell(
    to: &mut dyn Write,
    name: &str,
    workspace: &Workspace,
    source: &RescueSource,
    snapshot: &Snapshot,
) -> io::Result<()> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let one_line = |text: String| text.replace(['\n', '\0'], " ");
    let message = format!(
        "rescue of workspace {} ({})\n\n{BYTES}{}\n{HOLDS}{}\n{LEFT}{}\n",
        workspace.name,
        workspace.id,
        bytes_of(source, snapshot),
        holds(snapshot),
        one_line(Left::summary(&snapshot.left)),
    );
    writeln!(to, "commit {name}\ncommitter toft <toft> {now} +0000\ndata {}\n{message}", message.len())?;
    let mut parents: Vec<&String> = snapshot.head.iter().chain(&snapshot.commits).collect();
    parents.extend(snapshot.refs.iter().filter(|(name, _)| name.starts_with("refs/heads/")).map(|(_, oid)| oid));
    parents.extend(snapshot.stashes.iter().map(|(oid, _)| oid));
    let mut seen = std::collections::BTreeSet::new();
    parents.retain(|oid| seen.insert(*oid));
    for (n, oid) in parents.iter().enumerate() {
        writeln!(to, "{} {oid}", if n == 0 { "from" } else { "merge" })?;
    }
    writeln!(to, "deleteall")?;
    if let Some(dir) = &source.dir {
        for file in &snapshot.files {
            write_file(to, b"work/", file, dir)?;
        }
    }
    for file in &snapshot.own {
        write_file(to, b"own/", file, &source.own)?;
    }
    for (n, raw) in snapshot.raw.iter().enumerate().filter(|(_, raw)| !raw.is_dir()) {
        writeln!(to, "M 100644 inline {}", raw_name(n))?;
        match raw.is_link() {
            true => data(to, fs::read_link(source.raw(raw))?.as_os_str().as_bytes())?,
            false => file_data(to, &source.raw(raw))?,
        }
    }
    if snapshot.index {
        writeln!(to, "M 100644 inline index")?;
        file_data(to, &source.own.join("index"))?;
    }
    for oid in &snapshot.staged {
        writeln!(to, "M 100644 {oid} staged/{oid}")?;
    }
    writeln!(to, "M 100644 inline {MANIFEST}")?;
    data(to, &serde_json::to_vec_pretty(snapshot).map_err(io::Error::other)?)?;
    writeln!(to, "done")
}

/// The path in a rescue of an entry that is saved as it is. Entries are numbered, because a git tree cannot contain
/// names such as `.git`.
pub(super) fn raw_name(n: usize) -> String {
    format!("raw/{}/{n}", n / 256)
}

/// Writes a file or a link, with the mode that git can represent.
fn write_file(to: &mut dyn Write, below: &[u8], file: &SnapshotFile, dir: &Path) -> io::Result<()> {
    let path = dir.join(path_of(&file.name.0));
    let mode = if file.link() {
        "120000"
    } else if file.mode & 0o111 != 0 {
        "100755"
    } else {
        "100644"
    };
    writeln!(to, "M {mode} inline {}", quoted(below, &file.name.0))?;
    match file.link() {
        true => data(to, fs::read_link(&path)?.as_os_str().as_bytes()),
        false => file_data(to, &path),
    }
}

fn data(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    writeln!(to, "data {}", bytes.len())?;
    to.write_all(bytes)?;
    writeln!(to)
}

/// Writes a file's bytes, as many as it had when it was opened.
fn file_data(to: &mut dyn Write, path: &Path) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{} cannot be read: {error}", path.display()));
    let file = plain::open(path).map_err(named)?;
    let length = file.metadata()?.len();
    writeln!(to, "data {length}")?;
    if io::copy(&mut file.take(length), to)? != length {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} became shorter", path.display())));
    }
    writeln!(to)
}

/// Quotes a path for `git fast-import`.
fn quoted(below: &[u8], path: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in below.iter().chain(path) {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('"');
    text
}
