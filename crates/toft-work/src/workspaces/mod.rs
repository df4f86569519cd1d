//! Workspaces: a row in the store and a directory on disk, kept consistent.
//!
//! The row is written first and records the state; the directory follows, under a lock of its own, so that the next
//! command can continue after a crash. Start at [`Session::workspaces`]. `provide.rs` creates and restores workspaces,
//! `look.rs` examines them, `tidy.rs` removes them.

mod look;
mod occupied;
mod provide;
mod tidy;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::Serialize;
use toft_core::{
    flow::{Task, TaskStatus},
    id::TaskId,
    lease::{Fence, Processes},
    refusal::Refusal,
    time::Timestamp,
    verbs::{
        claim::Claimed,
        facts, finish,
        workspace::{List, Listed, Pin, RecordLanded, Show},
    },
    workspace::{Keep, Left, Workspace, WorkspaceState},
};
use toft_plan::Plan;
use toft_session::{
    config::OverlayMode,
    error::{Error, io},
};
use toft_vcs::{
    MAIN, Vcs,
    workspace::{Stand, WorkspaceBackend, WorkspaceError},
};

pub use self::{look::SeenWorkspace, tidy::own_size};
use crate::Work;
pub use toft_vcs::workspace::{Rescue, Rescued};

/// The clock of a commit and that of the store may differ by this much.
const CLOCKS_DIFFER: Duration = Duration::from_secs(120);

/// The request for a new workspace.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Its task or issue, by id.
    pub work: Option<String>,
    /// Its name, if not that of the work.
    pub name: Option<String>,
    /// The commit to start from, if not the main checkout's.
    pub base: Option<String>,
    /// Make it a repository of its own.
    pub clone: bool,
    /// Use the current checkout instead of a new directory.
    pub in_place: bool,
    /// Do not run setup.
    pub plain: bool,
    /// Create it in advance, for the next task that needs one.
    pub pooled: bool,
    /// The fence; that of the caller's own lease if absent.
    pub fence: Option<Fence>,
    /// A task without a workspace is retried after a delay, and fails after some attempts: for claims that take any
    /// task.
    pub rests: bool,
}

/// A workspace that is ready for work.
#[derive(Clone, Debug, Serialize)]
pub struct Given {
    #[serde(flatten)]
    pub workspace: Workspace,
    /// It existed already.
    pub existing: bool,
    /// Unexpected facts about its content.
    pub notes: Vec<String>,
}

/// The result of removing one workspace, or what would be done.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Tidied {
    pub name: String,
    /// It is removed, or would be.
    pub gone: bool,
    /// The reason.
    pub why: String,
    /// The rescue commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// A description of what the rescue contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<String>,
    /// Files that no rescue contains, with sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
    /// Its branch, which was deleted, or would be: the work on it has landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_branch: Option<String>,
    /// What keeps its commits that have not landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The command that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Tidied {
    /// A workspace that is kept.
    fn stays(name: &str, why: String) -> Self {
        Self { name: name.to_owned(), why, ..Self::default() }
    }
}

/// The workspaces of one repository on this machine.
pub struct Workspaces<'t> {
    work: Work<'t>,
    backend: WorkspaceBackend,
    source: PathBuf,
    root: PathBuf,
    state: PathBuf,
    id: String,
}

impl<'s> Work<'s> {
    /// The workspaces of this repository on this machine.
    pub fn workspaces(&self) -> Result<Workspaces<'s>, Error> {
        let located = self.located();
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        let (checkout, id) = located.checkout.as_ref().zip(located.repository.as_ref()).ok_or_else(nowhere)?;
        // Two repositories may have the same name.
        let word: String = id.as_str().trim_start_matches("rp_").chars().take(4).collect();
        let root = real(&located.workspaces.root).join(format!("{}-{word}", provide::file_name(&checkout.name())));
        Ok(Workspaces {
            work: *self,
            backend: WorkspaceBackend::of(checkout),
            source: checkout.root.clone(),
            root,
            state: checkout.state_dir(),
            id: id.to_string(),
        })
    }

    /// The workspace for a claimed task of `actor`. If it cannot be created, the task is released.
    pub fn workspace_for(
        &self,
        actor: &str,
        claimed: &Claimed,
        wanted: Wanted,
        step: impl FnMut(&str),
    ) -> Result<Given, Error> {
        let fence = Some(claimed.lease.fence());
        let work = Some(claimed.task.id.to_string());
        let wanted = Wanted { work, fence: fence.clone(), ..wanted };
        let rests = wanted.rests;
        // A task is worked on in its own repository, wherever it was claimed.
        let provide = || {
            let elsewhere = self.in_repository_of_claim(claimed)?;
            elsewhere.as_ref().map_or(*self, Work::of).workspaces()?.provide(actor, wanted, step)
        };
        provide().or_else(|error| {
            let (id, message) = (Some(claimed.task.id.to_string()), format!("no workspace: {error}"));
            // A process may leave the workspace at any moment, and a failing setup fails for every task.
            let passing = matches!(error, Error::Workspace(WorkspaceError::InUse { .. }) | Error::Setup { .. });
            let how = match rests && of_this_task(&error) && !passing {
                true => finish::How::Failed,
                false => finish::How::Release,
            };
            let request = finish::Request { id, fence, how, message, ..finish::Request::default() };
            self.finish(actor, None, request)?;
            Err(Error::NoWorkspace { cause: Box::new(error) })
        })
    }

    /// The workspace of the current directory, with its task and its holder.
    pub fn workspace_here(&self) -> Result<Option<Listed>, Error> {
        let Some(checkout) = self.located().checkout.as_ref().filter(|checkout| checkout.worktree != MAIN) else {
            return Ok(None);
        };
        match self.perform(Show { id: checkout.root.display().to_string() }) {
            Ok(found) => Ok(Some(found)),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The commit that is checked out in the workspace of the current directory.
    pub fn commit_here(&self) -> Result<Option<String>, Error> {
        match self.workspace_here()? {
            Some(found) => Ok(self.workspaces()?.backend.commit_at(Path::new(&found.workspace.path), "HEAD")?),
            None => Ok(None),
        }
    }

    /// The commit that is named as evidence: it must exist, and must have been made since work on the task began.
    /// Outside of a checkout it is not checked.
    pub(crate) fn checked_evidence(&self, task: &TaskId, text: &str) -> Result<String, Error> {
        let invalid = |problem: String| Error::from(Refusal::Invalid { field: "evidence".into(), problem });
        let Some(checkout) = &self.located().checkout else { return Ok(text.to_owned()) };
        if checkout.vcs == Vcs::None {
            return Err(invalid("no version control here knows commits; use --artifact or --no-change".into()));
        }
        let (commit, made) = WorkspaceBackend::of(checkout)
            .commit_made(&checkout.root, text)?
            .ok_or_else(|| invalid(format!("`{text}` is no commit here")))?;
        let attempts = self.perform(facts::TaskAttempts { task: task.clone() })?;
        let began = attempts.iter().map(|attempt| attempt.started).min();
        let before = began.is_some_and(|began| made.plus(CLOCKS_DIFFER) < began);
        if before {
            let short: String = commit.chars().take(12).collect();
            let problem = format!(
                "{short} was made before work on this began; name the commit that did it, or say why nothing had to change (--no-change)"
            );
            return Err(invalid(problem));
        }
        Ok(commit)
    }

    /// Removes every workspace whose task has ended and which the configuration does not keep: a command may have been
    /// killed before it did this.
    pub fn let_go_of_ended(&self, actor: &str) -> Result<Vec<Tidied>, Error> {
        let keep = self.located().workspaces.keep;
        if keep == Keep::Always {
            return Ok(Vec::new());
        }
        let mut gone = Vec::new();
        for row in self.perform(List { scope: self.scope(), all: false, limit: 0 })? {
            let Some(task) = row.workspace.task.filter(|_| !row.open) else { continue };
            if let Some(task) = self.perform(facts::TaskRow { task })? {
                gone.extend(self.let_go_of_workspace(actor, &task)?.filter(|tidied| tidied.gone));
            }
        }
        Ok(gone)
    }

    /// Removes the workspace of an ended task if the configuration says so and no process uses it.
    pub(crate) fn let_go_of_workspace(&self, actor: &str, task: &Task) -> Result<Option<Tidied>, Error> {
        if task.state.status.open() || self.located().checkout.is_none() {
            return Ok(None);
        }
        let id = task.id.as_str();
        let found = match self.perform(Show { id: id.to_owned() }) {
            Ok(found) if found.workspace.state == WorkspaceState::Ready => found,
            Ok(_) | Err(Error::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if found.workspace.host != self.machine().disks() {
            return Ok(None);
        }
        let all = self.workspaces()?;
        let succeeded = task.state.status == TaskStatus::Done;
        let Some(rescue) = self.located().workspaces.keep.lets_go(succeeded) else {
            let seen = all.look_now(found)?;
            let why = seen.survey.map(|survey| survey.summary()).or(seen.trouble).unwrap_or_default();
            return Ok(Some(Tidied::stays(&seen.listed.workspace.name, why)));
        };
        let found = found.workspace;
        match all.remove(actor, id, None, rescue, false) {
            Ok(tidied) => Ok(Some(tidied)),
            Err(Error::Store(error)) => Err(error.into()),
            Err(error) => Ok(Some(Tidied::stays(&found.name, error.to_string()))),
        }
    }
}

impl Workspaces<'_> {
    /// How a new workspace of this repository is created, and why; tested for real. None before the first one is
    /// created.
    pub fn made_as(&self) -> Option<String> {
        if !self.root.is_dir() {
            return None;
        }
        let instant = self.work.located().workspaces.instant;
        let found = match self.backend.try_instant_in(&self.root) {
            Ok(found) => found,
            Err(error) => return Some(format!("plain checkouts: {error}")),
        };
        let why = if found.why.is_empty() { String::new() } else { format!(" ({})", found.why.join("; ")) };
        Some(match instant {
            OverlayMode::Never => "plain checkouts: workspaces.instant is \"never\"".to_owned(),
            OverlayMode::Auto if !self.wants_sharing() => {
                format!("plain checkouts: this one is small or sparse; a large one would be {}{why}", found.name())
            }
            _ => format!("{}{why}", found.name()),
        })
    }

    /// The workspace that `text` names: by name, id, or a path in it, before a mere prefix match; without a text, the
    /// current one.
    pub fn named(&self, text: Option<&str>) -> Result<String, Error> {
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let text = text.unwrap_or(".");
        let path = fs::canonicalize(text).ok().filter(|_| text.starts_with('.') || text.contains('/'));
        let meant = |row: &&Listed| {
            let workspace = &row.workspace;
            let inside =
                path.as_ref().is_some_and(|path| !workspace.path.is_empty() && path.starts_with(&workspace.path));
            workspace.name == text || workspace.id.as_str() == text || inside
        };
        if let Some(found) = rows.iter().find(meant) {
            return Ok(found.workspace.id.to_string());
        }
        // The name of a removed workspace takes precedence over an issue whose id starts with it.
        let all = self.work.perform(List { scope: self.work.scope(), all: true, limit: 0 })?;
        if all.iter().any(|row| row.workspace.name == text) {
            return Ok(text.to_owned());
        }
        let issue = match Plan::open(self.work.session())? {
            Some(plan) if text != "@" && path.is_none() => plan.named(text)?,
            _ => None,
        };
        Ok(issue.map_or_else(|| text.to_owned(), |found| found.issue.id))
    }

    /// The rescues of a workspace, oldest first.
    pub fn rescues(&self, workspace: &Workspace) -> Result<Vec<Rescue>, Error> {
        Ok(self.backend.rescues(workspace)?)
    }

    /// Files that a rescue of a workspace would not contain, with sizes.
    pub fn leaves(&self, workspace: &Workspace) -> Result<Vec<Left>, Error> {
        Ok(self.backend.leaves(workspace)?)
    }

    /// The path of the setup log of a workspace.
    pub fn log(&self, workspace: &Workspace) -> PathBuf {
        self.state.join("workspaces").join(workspace.id.as_str()).join("setup.log")
    }

    fn host(&self) -> &str {
        self.work.machine().disks()
    }

    /// The time by the store's clock.
    pub fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.work.perform(facts::Clock {})?.now)
    }

    /// One workspace that exists on disk.
    pub fn open(&self, text: &str) -> Result<Workspace, Error> {
        let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
        if !workspace.state.live() {
            let (id, state) = (workspace.name, "removed".to_owned());
            let wanted = match &workspace.rescue {
                Some(_) => "toft ws restore restores its rescue",
                None => "toft ws create creates one; it has no rescue",
            };
            let wanted = wanted.to_owned();
            return Err(Refusal::WrongState { id, state, wanted }.into());
        }
        if workspace.host == self.host() {
            self.backend.open(&workspace)?;
        }
        Ok(workspace)
    }

    /// The commit that is checked out in a workspace before work starts.
    pub fn stands(&self, given: &Given) -> Result<String, Error> {
        Ok(match given.existing {
            true => self.backend.head(&given.workspace)?,
            false => self.backend.begun_at(&given.workspace)?,
        })
    }

    /// Removes lock files that a killed git left in a workspace before this time; returns their names.
    pub fn clear_locks(&self, workspace: &Workspace, before: SystemTime) -> Result<Vec<String>, Error> {
        Ok(self.backend.clear_locks(workspace, before)?)
    }

    /// The paths that work in a workspace writes to: the directory itself, and those that a commit writes to elsewhere.
    pub fn written(&self, workspace: &Workspace) -> Vec<PathBuf> {
        self.backend.written(workspace)
    }

    /// Files below those paths that only toft writes.
    pub fn fixed(&self, workspace: &Workspace) -> Vec<PathBuf> {
        self.backend.fixed(workspace)
    }

    /// Number of changed files in a workspace that are not committed.
    pub fn uncommitted(&self, workspace: &Workspace) -> Result<usize, Error> {
        Ok(self.backend.stand(workspace)?.uncommitted)
    }

    /// The newest commit in a workspace that was made there since `before`, if any; without one, the number of changed
    /// files that are not committed.
    pub fn own_work(&self, workspace: &Workspace, before: &str) -> Result<Stand, Error> {
        let commit = self.backend.head(workspace)?;
        if commit != before && self.backend.is_own(workspace, before, &commit)? {
            return Ok(Stand { commit, uncommitted: 0 });
        }
        Ok(Stand { commit: String::new(), ..self.backend.stand(workspace)? })
    }

    /// The commit of a workspace, and the tracked files that are changed and not committed.
    pub fn stand(&self, workspace: &Workspace) -> Result<(String, Vec<String>), Error> {
        Ok((self.backend.head(workspace)?, self.backend.modified(workspace)?))
    }

    /// The changes of a workspace since it was created, committed or not, in the format of git; with `words`, each word is
    /// marked.
    pub fn diff(&self, workspace: &Workspace, words: bool) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.backend.diff(workspace, words)?).into_owned())
    }

    /// The commit that a text names in a workspace.
    pub fn commit_in(&self, workspace: &Workspace, text: &str) -> Result<Option<String>, Error> {
        Ok(self.backend.commit_at(Path::new(&workspace.path), text)?)
    }

    /// Records that the work in a workspace has landed, up to its present commit.
    pub fn record_landed(&self, actor: &str, text: &str, fence: Option<Fence>) -> Result<Workspace, Error> {
        let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
        // One that is gone has no commit; the verb says so.
        let commit = if workspace.state.live() { self.backend.head(&workspace)? } else { String::new() };
        self.work.perform_as(actor, None, RecordLanded { id: workspace.id.to_string(), commit, fence })
    }

    /// Pins or unpins a workspace.
    pub fn pin(&self, actor: &str, text: &str, pinned: bool) -> Result<Workspace, Error> {
        self.work.perform_as(actor, None, Pin { id: text.to_owned(), pinned })
    }

    /// Directories beside the workspaces that have no row; toft never changes them.
    pub fn unknown(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(io("read", &self.root)(cause)),
        };
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let mut known: BTreeSet<PathBuf> = BTreeSet::new();
        for Listed { workspace, .. } in &rows {
            known.insert(PathBuf::from(&workspace.path));
            known.extend(WorkspaceBackend::on_its_way(workspace));
        }
        let mut unknown = Vec::new();
        for entry in entries {
            let path = entry.map_err(io("read", &self.root))?.path();
            let beside = path.file_name().is_some_and(|name| WorkspaceBackend::beside(&name.to_string_lossy()));
            if !known.contains(&path) && !beside {
                unknown.push(path);
            }
        }
        unknown.sort();
        Ok(unknown)
    }
}

/// A directory with links resolved, as git and programs in it name it; as far as it exists.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|part| Some((part, fs::canonicalize(part).ok()?)));
    match there {
        Some((part, real)) => real.join(path.strip_prefix(part).unwrap_or(Path::new(""))),
        None => path.to_owned(),
    }
}

/// Whether a failure to create a workspace counts as an attempt at its task: the cause is specific to the task, or
/// occurred before.
pub fn counts_against(task: &Task, error: &Error) -> bool {
    let again = task.state.fence > 1 && matches!(error, Error::Workspace(_) | Error::Checkout(_));
    of_this_task(error) || again && !full(error)
}

/// Whether a workspace could not be created for a reason that does not affect other tasks.
fn of_this_task(error: &Error) -> bool {
    use WorkspaceError::{BadName, BranchTaken, InUse, PathTaken, Stays};
    match error {
        Error::Setup { .. } => true,
        // An existing workspace for this task is quarantined, being removed, or belongs to another one.
        Error::Refused(refusal) => matches!(refusal, Refusal::WrongState { .. } | Refusal::Exists { .. }),
        Error::Workspace(error) => {
            matches!(error, BadName { .. } | BranchTaken { .. } | PathTaken { .. } | InUse { .. } | Stays { .. })
        }
        _ => false,
    }
}

/// Whether the disk is full, which is not specific to a task.
fn full(error: &Error) -> bool {
    matches!(error, Error::Workspace(WorkspaceError::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::StorageFull)
}
