//! Examines workspaces: the content of each, its problems, and which of them cannot be merged with each other. A broken
//! workspace is one bad row; the others are not affected.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use toft_core::{
    lease::Processes as _,
    repository::Scope,
    time::Timestamp,
    verbs::workspace::{List, Listed, Show},
    workspace::{Survey, Workspace, WorkspaceKind, WorkspaceState},
};
use toft_session::error::Error;
use toft_vcs::workspace::{InProgress, Look, Refs, quoted};

use super::{Workspaces, own_size};
use crate::Work;

/// Maximum number of workspaces that are examined in parallel, and the minimum: git mostly waits for the disk.
const MOST_HANDS: usize = 8;
const FEWEST_HANDS: usize = 2;
/// How long the measured size of a workspace is valid.
const SIZE_LASTS: Duration = Duration::from_secs(600);
/// Up to this many workspaces are always examined, however long it takes.
const FEW: usize = 6;
/// Maximum number of workspaces that are compared with each other.
const COMPARED: usize = 300;

/// A workspace and its content.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SeenWorkspace {
    /// The workspace.
    #[serde(flatten)]
    pub listed: Listed,
    /// Its content; absent if it is removed, or on another machine.
    pub survey: Option<Survey>,
    /// When it was examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked: Option<Timestamp>,
    /// Its own size on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The problem with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The command that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The clone on this machine that it belongs to, if that is another one; it is examined there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_clone: Option<String>,
    /// Files that are changed and not committed.
    #[serde(skip)]
    pub uncommitted: Vec<String>,
}

impl SeenWorkspace {
    /// A workspace that was not examined yet.
    fn unseen(listed: Listed) -> Self {
        Self {
            listed,
            survey: None,
            looked: None,
            bytes: None,
            trouble: None,
            help: None,
            other_clone: None,
            uncommitted: Vec::new(),
        }
    }
}

/// Two workspaces whose work collides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Collision {
    /// The kind of collision.
    pub kind: CollisionKind,
    /// The workspaces, by name.
    pub workspaces: Vec<String>,
    /// The work in each of them.
    pub between: Vec<Party>,
    /// The files.
    pub paths: Vec<String>,
}

/// A workspace in a collision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Party {
    /// The workspace, by name.
    pub workspace: String,
    /// The issue of its task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// The name of its task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The kind of a collision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CollisionKind {
    /// Git cannot merge the commits.
    Conflict,
    /// Both change the same file, and at least one has not committed it.
    Uncommitted,
    /// A task is expected to change a file that the other changes, or is expected to change.
    Planned,
}

/// The state of workspaces for `status`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Broken workspaces.
    pub broken: Vec<SeenWorkspace>,
    pub collisions: Vec<Collision>,
    /// The oldest result that was used, if not all workspaces were examined now.
    pub as_of: Option<Timestamp>,
    /// Number of workspaces that were never examined.
    pub unseen: usize,
}

impl Work<'_> {
    /// Workspaces on this machine whose repository was moved or deleted: each is broken.
    pub fn workspaces_without_repository(&self, scope: Scope) -> Result<Vec<SeenWorkspace>, Error> {
        let rows = self.perform(List { scope, all: false, limit: 0 })?;
        let here = rows.into_iter().filter(|row| row.workspace.host == self.machine().disks());
        let lost = here.map(|listed| {
            let source = &listed.workspace.source;
            let trouble = Some(format!("its repository is not at {source} any more"));
            let help = Some("toft -C DIR where, with DIR where the repository is now".to_owned());
            SeenWorkspace { trouble, help, ..SeenWorkspace::unseen(listed) }
        });
        Ok(lost.collect())
    }
}

impl Workspaces<'_> {
    /// The workspaces, newest first, with their content.
    pub fn list(&self, all: bool, limit: usize) -> Result<Vec<SeenWorkspace>, Error> {
        let rows = self.work.perform(List { scope: self.work.scope(), all, limit })?;
        let (refs, now) = (self.backend.refs()?, self.now()?);
        if limit == 0 || rows.len() < limit {
            self.backend.forget_looks(|id| rows.iter().any(|row| row.workspace.id.as_str() == id));
        }
        Ok(side_by_side(&rows, |listed| self.look(listed.clone(), &refs, now)))
    }

    /// One workspace with its content.
    pub fn show(&self, text: &str) -> Result<SeenWorkspace, Error> {
        let found = self.work.perform(Show { id: text.to_owned() })?;
        Ok(self.look(found, &self.backend.refs()?, self.now()?))
    }

    /// One workspace, examined now.
    pub(super) fn look_now(&self, listed: Listed) -> Result<SeenWorkspace, Error> {
        Ok(self.look(listed, &self.backend.refs()?, self.now()?))
    }

    fn look(&self, listed: Listed, refs: &Refs, now: Timestamp) -> SeenWorkspace {
        let (seen, there) = self.check(listed);
        if !there || seen.trouble.is_some() {
            return seen;
        }
        let workspace = &seen.listed.workspace;
        let size = |known: Option<(u64, Timestamp)>| match known {
            Some((bytes, at)) if now.since(at) < SIZE_LASTS && at <= now => (bytes, at),
            _ => (own_size(workspace), now),
        };
        match self.backend.look(workspace, refs, now, size) {
            Ok(look) => with(seen, look),
            Err(error) => {
                let help = Some(format!("toft ws show {}", workspace.name));
                SeenWorkspace { trouble: Some(error.to_string()), help, ..seen }
            }
        }
    }

    /// What is known of a workspace from its row and from files alone; and whether to examine it further.
    fn check(&self, listed: Listed) -> (SeenWorkspace, bool) {
        let workspace = &listed.workspace;
        let there = workspace.state.live() && workspace.host == self.host();
        let (mut trouble, mut help) = (None, None);
        if there && let Some((other_clone, help)) = self.other_clone(workspace) {
            let (other_clone, help) = (Some(other_clone), Some(help));
            return (SeenWorkspace { other_clone, help, ..SeenWorkspace::unseen(listed) }, false);
        }
        if workspace.is_unreadable() {
            let why = workspace.reason.as_deref().unwrap_or_default();
            (trouble, help) = (Some(format!("its row in the store cannot be read: {why}")), Some("toft doctor".into()));
        } else if there {
            let found = self.backend.trouble(workspace);
            // Mount it again if the mount is gone or dead, and repair the links of a moved repository.
            let found = found.and_then(|_| {
                // If that fails, the problem itself is reported.
                let _ = self.backend.open(workspace);
                self.backend.trouble(workspace)
            });
            if let Some(found) = found {
                let begun = matches!(workspace.state, WorkspaceState::Provisioning | WorkspaceState::Removing);
                let show = format!("toft ws show {}", workspace.name);
                (trouble, help) = (Some(found.what), Some(if begun { show } else { found.help }));
            }
        }
        (SeenWorkspace { trouble, help, ..SeenWorkspace::unseen(listed) }, there)
    }

    /// The other clone that a workspace belongs to, and the command that shows it there.
    pub(super) fn other_clone(&self, workspace: &Workspace) -> Option<(String, String)> {
        let clone = self.backend.other_clone(workspace)?;
        let help = format!("toft -C {} ws show {}", quoted(&clone), workspace.name);
        Some((clone.display().to_string(), help))
    }

    /// The problem with a workspace and the command that helps, from files alone.
    pub(super) fn trouble(&self, listed: &Listed) -> Option<(String, Option<String>)> {
        let seen = self.check(listed.clone()).0;
        seen.trouble.map(|trouble| (trouble, seen.help))
    }

    /// The state for `status`: broken workspaces and, if `compared`, collisions. The workspaces with the oldest results
    /// are examined again until `budget` is used up; for the others the last result is used.
    pub fn overview(&self, compared: bool, budget: Duration) -> Result<Overview, Error> {
        let until = Instant::now() + budget;
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let checked: Vec<(SeenWorkspace, bool)> = rows.into_iter().map(|row| self.check(row)).collect();
        let (broken, well): (Vec<_>, Vec<_>) = checked.into_iter().partition(|(seen, _)| seen.trouble.is_some());
        let mut overview =
            Overview { broken: broken.into_iter().map(|(seen, _)| seen).collect(), ..Overview::default() };
        if !compared {
            return Ok(overview);
        }
        let (refs, now) = (self.backend.refs()?, self.now()?);
        let open = well.into_iter().filter(|(seen, _)| !seen.listed.workspace.pooled).take(COMPARED);
        let mut known: Vec<(SeenWorkspace, bool, Option<Look>)> = open
            .map(|(seen, there)| {
                (there.then(|| self.backend.remembered(&seen.listed.workspace)).flatten(), seen, there)
            })
            .map(|(look, seen, there)| (seen, there, look))
            .collect();
        known.sort_by_key(|(_, _, look)| look.as_ref().map(|look| look.at));
        let few = known.len() <= FEW;
        let looked = side_by_side(&known, |(seen, there, look)| {
            let last = || match look {
                Some(look) => (with(seen.clone(), look.clone()), false),
                None => (seen.clone(), false),
            };
            match *there && (few || Instant::now() < until) {
                true => (self.look(seen.listed.clone(), &refs, now), true),
                false => last(),
            }
        });
        let old = looked.iter().filter(|(_, fresh)| !fresh).filter_map(|(seen, _)| seen.looked);
        overview.as_of = old.min();
        let never = |(seen, _): &&(SeenWorkspace, bool)| {
            let here = seen.listed.workspace.host == self.host() && seen.other_clone.is_none();
            seen.looked.is_none() && seen.trouble.is_none() && here
        };
        overview.unseen = looked.iter().filter(never).count();
        let seen: Vec<SeenWorkspace> = looked.into_iter().map(|(seen, _)| seen).collect();
        overview.collisions = self.collisions(&seen, &refs)?;
        Ok(overview)
    }

    /// Collisions between workspaces: the examined ones, and the others in their last known state.
    pub fn collisions_among(&self, seen: &[SeenWorkspace]) -> Result<Vec<Collision>, Error> {
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let mut all = seen.to_vec();
        for row in rows {
            if !seen.iter().any(|seen| seen.listed.workspace.id == row.workspace.id) {
                let (other, there) = self.check(row);
                let look = there.then(|| self.backend.remembered(&other.listed.workspace)).flatten();
                all.push(look.map_or(other.clone(), |look| with(other, look)));
            }
        }
        self.collisions(&all, &self.backend.refs()?)
    }

    fn collisions(&self, seen: &[SeenWorkspace], refs: &Refs) -> Result<Vec<Collision>, Error> {
        let here = |seen: &&SeenWorkspace| {
            let workspace = &seen.listed.workspace;
            let well = seen.trouble.is_none() && seen.other_clone.is_none();
            workspace.host == self.host() && workspace.state.live() && !workspace.pooled && well
        };
        let open: Vec<&SeenWorkspace> = seen.iter().filter(here).take(COMPARED).collect();
        if open.len() < 2 {
            return Ok(Vec::new());
        }
        let heads: Vec<Option<String>> =
            open.iter().map(|seen| self.backend.head_by(&seen.listed.workspace, refs)).collect();
        let targets: BTreeSet<String> =
            open.iter().flat_map(|seen| self.backend.targets(&seen.listed.workspace, refs)).collect();
        let clones = open.iter().map(|seen| &seen.listed.workspace).filter(|row| row.kind == WorkspaceKind::Clone);
        let clones: Vec<PathBuf> = clones.map(|row| Path::new(&row.path).join(".git")).collect();
        let found = self.backend.in_progress(&heads.iter().flatten().cloned().collect(), &targets, &clones)?;
        let mut pairs: BTreeMap<(usize, usize), (CollisionKind, BTreeSet<String>)> = BTreeMap::new();
        for conflict in &found.conflicts {
            let at = |head: &String| -> Vec<usize> {
                (0..heads.len()).filter(|n| heads[*n].as_ref() == Some(head)).collect()
            };
            for one in at(&conflict.heads.0) {
                for other in at(&conflict.heads.1) {
                    let key = (one.min(other), one.max(other));
                    pairs.insert(key, (CollisionKind::Conflict, conflict.paths.iter().cloned().collect()));
                }
            }
        }
        overlaps(&open, &heads, &found, &mut pairs);
        let party = |n: usize| {
            let listed = &open[n].listed;
            Party { workspace: listed.workspace.name.clone(), issue: listed.issue.clone(), title: listed.title.clone() }
        };
        let mut collisions: Vec<Collision> = pairs
            .into_iter()
            .map(|((one, other), (kind, paths))| {
                // The older workspace first.
                let between = vec![party(other), party(one)];
                let workspaces = between.iter().map(|party| party.workspace.clone()).collect();
                Collision { kind, workspaces, between, paths: paths.into_iter().collect() }
            })
            .collect();
        collisions.sort_by(|a, b| (a.kind, &a.workspaces).cmp(&(b.kind, &b.workspaces)));
        Ok(collisions)
    }
}

/// Adds pairs with a common file that one of them has not committed, or is only expected to change.
fn overlaps(
    open: &[&SeenWorkspace],
    heads: &[Option<String>],
    found: &InProgress,
    pairs: &mut BTreeMap<(usize, usize), (CollisionKind, BTreeSet<String>)>,
) {
    let mut by_path: BTreeMap<&str, Vec<(usize, CollisionKind)>> = BTreeMap::new();
    for (n, seen) in open.iter().enumerate() {
        let mut mine: BTreeMap<&str, CollisionKind> = BTreeMap::new();
        for path in seen.listed.paths.iter() {
            mine.insert(path, CollisionKind::Planned);
        }
        for path in heads[n].as_ref().and_then(|head| found.changed.get(head)).into_iter().flatten() {
            mine.insert(path, CollisionKind::Conflict);
        }
        for path in &seen.uncommitted {
            mine.insert(path, CollisionKind::Uncommitted);
        }
        for (path, how) in mine {
            by_path.entry(path).or_default().push((n, how));
        }
    }
    for (path, who) in by_path.into_iter().filter(|(_, who)| who.len() > 1) {
        for (n, (one, ours)) in who.iter().enumerate() {
            for (other, theirs) in &who[n + 1..] {
                // If both committed the file, git decides.
                let kind = *ours.max(theirs);
                if kind == CollisionKind::Conflict {
                    continue;
                }
                let entry = pairs.entry((*one, *other)).or_insert_with(|| (kind, BTreeSet::new()));
                if entry.0 != CollisionKind::Conflict {
                    entry.0 = entry.0.min(kind);
                    entry.1.insert(path.to_owned());
                }
            }
        }
    }
}

/// A workspace with the result of an examination.
fn with(seen: SeenWorkspace, look: Look) -> SeenWorkspace {
    SeenWorkspace {
        survey: Some(look.survey),
        looked: Some(look.at),
        bytes: look.bytes.map(|(bytes, _)| bytes),
        uncommitted: look.uncommitted,
        ..seen
    }
}

/// Runs a function for each item on several threads; returns the results in the order of the items.
pub(super) fn side_by_side<T: Sync, R: Send>(all: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let hands = cores.clamp(FEWEST_HANDS, MOST_HANDS).min(all.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(all.len())));
    thread::scope(|scope| {
        for _ in 0..hands {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(n) else { return };
                    let result = each(one);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((n, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}
