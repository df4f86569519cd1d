//! Examines workspaces: the content of each, and its problems. A broken workspace is one bad row; the others are not
//! affected.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde::Serialize;
use toft_core::{
    lease::Processes as _,
    repository::Scope,
    time::Timestamp,
    verbs::workspace::{List, Listed, Show},
    workspace::{Survey, Workspace, WorkspaceState},
};
use toft_session::error::Error;
use toft_vcs::workspace::{Look, Refs, quoted};

use super::{Workspaces, own_size};
use crate::Work;

/// Maximum number of workspaces that are examined in parallel, and the minimum: git mostly waits for the disk.
const MOST_HANDS: usize = 8;
const FEWEST_HANDS: usize = 2;
/// How long the measured size of a workspace is valid.
const SIZE_LASTS: Duration = Duration::from_secs(600);

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
}

impl SeenWorkspace {
    /// A workspace that was not examined yet.
    fn unseen(listed: Listed) -> Self {
        Self { listed, survey: None, looked: None, bytes: None, trouble: None, help: None, other_clone: None }
    }
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
                let help = Some(format!("toft ws list {}", workspace.name));
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
                let show = format!("toft ws list {}", workspace.name);
                (trouble, help) = (Some(found.what), Some(if begun { show } else { found.help }));
            }
        }
        (SeenWorkspace { trouble, help, ..SeenWorkspace::unseen(listed) }, there)
    }

    /// The other clone that a workspace belongs to, and the command that shows it there.
    pub(super) fn other_clone(&self, workspace: &Workspace) -> Option<(String, String)> {
        let clone = self.backend.other_clone(workspace)?;
        let help = format!("toft -C {} ws list {}", quoted(&clone), workspace.name);
        Some((clone.display().to_string(), help))
    }

    /// The problem with a workspace and the command that helps, from files alone.
    pub(super) fn trouble(&self, listed: &Listed) -> Option<(String, Option<String>)> {
        let seen = self.check(listed.clone()).0;
        seen.trouble.map(|trouble| (trouble, seen.help))
    }

    /// Workspaces that are broken, from their rows and files alone.
    pub fn broken(&self) -> Result<Vec<SeenWorkspace>, Error> {
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        Ok(rows.into_iter().map(|row| self.check(row).0).filter(|seen| seen.trouble.is_some()).collect())
    }
}

/// A workspace with the result of an examination.
fn with(seen: SeenWorkspace, look: Look) -> SeenWorkspace {
    SeenWorkspace {
        survey: Some(look.survey),
        looked: Some(look.at),
        bytes: look.bytes.map(|(bytes, _)| bytes),
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
