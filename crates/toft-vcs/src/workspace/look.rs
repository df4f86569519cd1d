//! A quick look at a git workspace: one `git status` on a private, refreshed copy of its index, and what was learned
//! before.
//!
//! A look decides nothing: what is removed is judged by a survey without memory. What is remembered stays true:
//!
//! - The copy of the index is used while the workspace's own index has the bytes and the modification time it was copied
//!   with. Git refreshes the copy, so that files are not read again; the workspace's own index is never written.
//! - Facts are answers that follow from commits alone, under a key that contains a hash of every commit they follow from.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use toft_core::{
    time::Timestamp,
    workspace::{Landed, Survey, Workspace, WorkspaceKind},
};

use super::{
    WorkspaceBackend, WorkspaceError, git, landed, remove,
    survey::{self, Status},
};
use crate::{git_run::Git, lock::io as failed, plain, private};

/// A lock on the copy of an index that is older than this was left by a git that was killed. A copy that is older than
/// this is used by no other process.
const STALE_AGE: Duration = Duration::from_secs(60);
/// With more reflog entries than this, one command for all of them is not tried.
const MAX_REFLOG_TIPS: usize = 500;

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub at: Timestamp,
    /// What is in the workspace.
    pub survey: Survey,
    /// How much it takes on disk by itself, and when that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<(u64, Timestamp)>,
}

/// What is remembered of a workspace from look to look.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LookCache {
    look: Look,
    /// Answers that follow from commits alone.
    facts: CommitFacts,
    /// The directories of an index that has neither submodules nor files that git was told not to look at.
    plain: Option<Vec<String>>,
}

/// Answers by question. Those that a look did not need are forgotten.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CommitFacts {
    known: BTreeMap<String, String>,
    #[serde(skip)]
    used: BTreeMap<String, String>,
}

impl CommitFacts {
    /// The answer to a question that has one for ever; asked only the first time.
    pub(super) fn once(
        &mut self,
        question: String,
        ask: impl FnOnce() -> Result<String, WorkspaceError>,
    ) -> Result<String, WorkspaceError> {
        let answer = match self.known.get(&question) {
            Some(known) => known.clone(),
            None => ask()?,
        };
        self.used.insert(question, answer.clone());
        Ok(answer)
    }
}

/// Branches and remote branches of a repository, as they were in one moment.
#[derive(Debug, Default)]
pub struct Refs {
    commits: BTreeMap<String, String>,
    upstreams: BTreeMap<String, String>,
}

impl Refs {
    /// The commit of a ref.
    pub(super) fn commit(&self, name: &str) -> Option<&String> {
        self.commits.get(name)
    }

    /// The ref that a branch follows.
    pub(super) fn upstream(&self, name: &str) -> Option<&String> {
        self.upstreams.get(name)
    }

    /// A hash of all remote branches; nothing if there are none.
    pub(super) fn remotes_hash(&self) -> Option<String> {
        let remotes = self.commits.iter().filter(|(name, _)| name.starts_with("refs/remotes/"));
        let parts: Vec<&[u8]> = remotes.flat_map(|(name, commit)| [name.as_bytes(), commit.as_bytes()]).collect();
        (!parts.is_empty()).then(|| hash_of(parts))
    }
}

/// A hash of texts without line breaks.
fn hash_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part).update(b"\n");
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// What helps a survey along.
pub(super) struct SurveyContext<'a> {
    pub(super) refs: &'a Refs,
    pub(super) facts: CommitFacts,
    index: Option<PathBuf>,
    plain: Option<Vec<String>>,
}

impl<'a> SurveyContext<'a> {
    /// A survey that remembers nothing, but for the copy of the index.
    pub(super) fn fresh(backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path, refs: &'a Refs) -> Self {
        let index = backend.copied_index(workspace, dir).ok().map(|(index, _)| index);
        Self { refs, facts: CommitFacts::default(), index, plain: None }
    }

    /// Questions about commits alone.
    pub(super) fn none(refs: &'a Refs) -> Self {
        Self { refs, facts: CommitFacts::default(), index: None, plain: None }
    }

    /// Git in a checkout.
    pub(super) fn git(
        &self,
        backend: &WorkspaceBackend,
        workspace: &Workspace,
        dir: &Path,
    ) -> Result<Git, WorkspaceError> {
        let git = backend.git_in(workspace, dir)?;
        Ok(match &self.index {
            Some(index) => git.on_index(index),
            None => git,
        })
    }

    /// What git says is in a checkout.
    pub(super) fn status(&mut self, git: &Git) -> Result<Status, WorkspaceError> {
        if let Some(dirs) = &self.plain {
            let mut status = survey::status_of_plain(git)?;
            status.nested.extend(survey::hidden_in(git.dir(), dirs.iter().map(String::as_bytes)));
            return Ok(status);
        }
        let status = survey::status(git)?;
        if !status.index.is_empty() && status.submodules.is_empty() && !status.unwatched {
            let dirs = survey::tracked_dirs(&status).into_iter().map(|dir| String::from_utf8(dir.to_vec()));
            self.plain = dirs.collect::<Result<_, _>>().ok();
        }
        Ok(status)
    }

    /// How many commits only a worktree's own log knows.
    pub(super) fn dropped(&mut self, git: &Git, head: Option<&str>, logs: &[PathBuf]) -> Result<usize, WorkspaceError> {
        let own = git.git_dir();
        let tips = survey::logged(logs)?;
        let (Some(head), true) = (head, tips.len() <= MAX_REFLOG_TIPS && !has_refs(own)) else {
            return Ok(survey::dropped(git, own, logs)?.len());
        };
        // What the present commit builds on is reachable whatever else happens.
        let beside =
            self.facts.once(format!("beside {head} {}", hash_of(tips.iter().map(String::as_bytes))), || {
                let run = git.run(["rev-list", "--max-count=1", "--ignore-missing"])?.args(&tips);
                Ok(run.args(["--not", head]).text()?)
            })?;
        if beside.is_empty() { Ok(0) } else { Ok(survey::dropped(git, own, logs)?.len()) }
    }

    /// How many stashes were made on a worktree's branch.
    pub(super) fn stashes(
        &self,
        git: &Git,
        workspace: &Workspace,
        branch: Option<&str>,
    ) -> Result<usize, WorkspaceError> {
        if workspace.kind != WorkspaceKind::Clone && self.refs.commit("refs/stash").is_none() {
            return Ok(0);
        }
        Ok(survey::stashes(git, workspace, branch)?.len())
    }
}

/// Whether a worktree has refs of its own.
fn has_refs(own: &Path) -> bool {
    if own.join("reftable").exists() {
        return true;
    }
    let mut look = vec![own.join("refs")];
    while let Some(dir) = look.pop() {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // In doubt git is asked.
            Err(_) => return true,
        };
        for entry in entries {
            match entry {
                Ok(entry) if entry.file_type().is_ok_and(|kind| kind.is_dir()) => look.push(entry.path()),
                _ => return true,
            }
        }
    }
    false
}

impl WorkspaceBackend {
    /// Branches and remote branches as they are now.
    pub fn refs(&self) -> Result<Refs, WorkspaceError> {
        if !self.system().has_git_files() {
            return Ok(Refs::default());
        }
        let ask = ["for-each-ref", "--format=%(objectname) %(refname) %(upstream)"];
        let said = self.git()?.run(ask)?.args(["refs/heads", "refs/remotes", "refs/stash"]).text()?;
        let mut refs = Refs::default();
        for line in said.lines() {
            let mut words = line.split(' ');
            let (Some(commit), Some(name)) = (words.next(), words.next()) else { continue };
            refs.commits.insert(name.to_owned(), commit.to_owned());
            if let Some(upstream) = words.next().filter(|word| !word.is_empty()) {
                refs.upstreams.insert(name.to_owned(), upstream.to_owned());
            }
        }
        Ok(refs)
    }

    /// Git in a workspace, on a refreshed copy of its index where there is room for one.
    pub(super) fn inside(&self, workspace: &Workspace, dir: &Path) -> Result<Git, WorkspaceError> {
        let git = self.git_in(workspace, dir)?;
        Ok(match self.copied_index(workspace, dir) {
            Ok((index, _)) => git.on_index(&index),
            Err(_) => git,
        })
    }

    /// Deletes the branch of a workspace that is gone, if its work has landed. Commits that landed as others are kept under
    /// `refs/toft/landed/`. Says whether the branch is gone.
    pub fn drop_landed(&self, workspace: &Workspace, refs: &Refs) -> Result<bool, WorkspaceError> {
        let branch = workspace.branch.as_ref().filter(|_| workspace.own_branch && self.system().has_git_files());
        let Some(head) = branch.and_then(|name| refs.commit(&format!("refs/heads/{name}"))) else { return Ok(false) };
        let Some(how) = landed::of_branch(self, workspace, head, refs)? else { return Ok(false) };
        if !matches!(how, Landed::Nothing | Landed::Merged) {
            let name = format!("refs/toft/landed/{}", workspace.id);
            self.git()?.run(["update-ref", &name, head])?.ok()?;
        }
        remove::drop_branch(self, workspace, head)?;
        Ok(!git::has_branch(self, branch.map(String::as_str).unwrap_or_default())?)
    }

    /// Whether a branch is there.
    pub fn knows_branch(refs: &Refs, name: &str) -> bool {
        refs.commit(&format!("refs/heads/{name}")).is_some()
    }

    /// Deletes what waits to be deleted beside the workspaces, after the answer.
    pub fn sweep(&self, dir: &Path) -> Result<(), WorkspaceError> {
        remove::sweep(dir)
    }

    /// A private copy of a workspace's index, and whether it is the one of the last look.
    fn copied_index(&self, workspace: &Workspace, dir: &Path) -> Result<(PathBuf, bool), WorkspaceError> {
        let own = match workspace.kind {
            WorkspaceKind::Clone => dir.join(".git"),
            _ => self.own_dir(workspace)?.git_dir,
        };
        copied_index(&own, &self.memory_of(workspace))
    }

    /// Where what is remembered of a workspace is.
    fn memory_of(&self, workspace: &Workspace) -> PathBuf {
        self.state.join("looks").join(workspace.id.as_str())
    }

    fn recall(&self, workspace: &Workspace) -> Option<LookCache> {
        serde_json::from_slice(&fs::read(self.memory_of(workspace).join("memory.json")).ok()?).ok()
    }

    /// Looks at a workspace, with what is remembered of it, and remembers what was found. `size` measures it, if what is
    /// known of that is too old.
    pub fn look(
        &self,
        workspace: &Workspace,
        refs: &Refs,
        now: Timestamp,
        size: impl FnOnce(Option<(u64, Timestamp)>) -> (u64, Timestamp),
    ) -> Result<Look, WorkspaceError> {
        self.open(workspace)?;
        let dir = Path::new(&workspace.path);
        let memory = self.recall(workspace).unwrap_or_default();
        let place = self.memory_of(workspace);
        if !self.system().has_git_files() {
            let survey = self.survey_at(workspace, dir)?;
            let look = Look { at: now, survey, bytes: Some(size(memory.look.bytes)) };
            keep(&place.join("memory.json"), &LookCache { look: look.clone(), ..LookCache::default() });
            return Ok(look);
        }
        // Without a place for it nothing is remembered, and everything is seen all the same.
        let (index, same) = match self.copied_index(workspace, dir) {
            Ok((index, same)) => (Some(index), same),
            Err(_) => (None, false),
        };
        let mut aid = SurveyContext { refs, facts: memory.facts, index, plain: memory.plain.filter(|_| same) };
        let (survey, _) = survey::survey_with(self, workspace, dir, &mut aid)?;
        let look = Look { at: now, survey, bytes: Some(size(memory.look.bytes)) };
        let facts = CommitFacts { known: aid.facts.used, used: BTreeMap::new() };
        let memory = LookCache { look: look.clone(), facts, plain: aid.plain };
        keep(&place.join("memory.json"), &memory);
        Ok(look)
    }

    /// Forgets what is remembered of workspaces that are gone.
    pub fn forget_looks(&self, live: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(self.state.join("looks")) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if !live(&entry.file_name().to_string_lossy()) {
                // It is small, and tried again the next time.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Replaces a private file with JSON. The cache is best effort: what is not in it is asked again.
fn keep(path: &Path, what: &impl Serialize) {
    if let Ok(bytes) = serde_json::to_vec(what) {
        let _ = write(path, &bytes, None);
    }
}

/// Replaces a private file, and sets its modification time if one is given.
fn write(path: &Path, bytes: &[u8], modified: Option<SystemTime>) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    private::create_dir_all(dir)?;
    let mut draft = tempfile::NamedTempFile::new_in(dir)?;
    io::Write::write_all(&mut draft, bytes)?;
    if let Some(modified) = modified {
        draft.as_file().set_modified(modified)?;
    }
    draft.persist(path).map(drop).map_err(|error| error.error)
}

/// A private copy of a checkout's index, and whether it is the one of the last look.
///
/// Git compares the modification time of a file with that of the index: a file that is not older is compared by content,
/// because its size and time may be those of an earlier content. So the copy gets the time of the original.
fn copied_index(own: &Path, place: &Path) -> Result<(PathBuf, bool), WorkspaceError> {
    let own = own.join("index");
    let (now, modified) = read_with_time(&own).map_err(failed("read", &own))?;
    // Under a name of its own for each content: a git that still refreshes an older copy does not replace a newer one.
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("index-{}-{:x}", hash_of([now.as_slice()]), since.as_nanos());
    let (copy, origin) = (place.join(&name), place.join(format!("{name}.origin")));
    let lock = place.join(format!("{name}.lock"));
    if is_stale(&lock) {
        // If it cannot be removed, git status only skips the refresh.
        let _ = fs::remove_file(&lock);
    }
    if copy.is_file() && fs::read(&origin).is_ok_and(|known| known == now) {
        return Ok((copy, true));
    }
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("index-") && is_stale(&entry.path()) {
            // Older copies; one that stays is found the next time.
            let _ = fs::remove_file(entry.path());
        }
    }
    // The origin comes last: a process that is killed in between leaves no copy that seems to fit.
    write(&copy, &now, Some(modified)).map_err(failed("write", &copy))?;
    write(&origin, &now, None).map_err(failed("write", &origin))?;
    Ok((copy, false))
}

/// Whether a file was created or replaced so long ago that no process uses it.
fn is_stale(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else { return false };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(meta.ctime().try_into().unwrap_or(0));
    SystemTime::now().duration_since(changed).is_ok_and(|age| age > STALE_AGE)
}

/// A regular file's bytes, and when they were written.
fn read_with_time(path: &Path) -> io::Result<(Vec<u8>, SystemTime)> {
    let mut file = plain::open(path)?;
    let modified = file.metadata()?.modified()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((bytes, modified))
}

/// Copies an index with its modification time.
pub(super) fn copy_index(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let copied = read_with_time(from).and_then(|(bytes, modified)| {
        fs::write(to, bytes)?;
        fs::File::options().write(true).open(to)?.set_modified(modified)
    });
    copied.map_err(failed("copy", to))
}
