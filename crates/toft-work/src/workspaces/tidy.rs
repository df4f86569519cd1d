//! Removes workspaces: one, or all unused ones.

use std::{fs, path::Path, time::Duration};

use toft_core::{
    id::TaskId,
    lease::Fence,
    refusal::Refusal,
    verbs::{
        facts,
        workspace::{List, Listed, Move, Show, Unregister},
    },
    workspace::{Fate, Left, Limits, Survey, Workspace, WorkspaceKind, WorkspaceState, size as shown},
};
use toft_session::error::Error;
use toft_vcs::workspace::{Removal, Removed, Rescue, Rescued, WorkspaceBackend, WorkspaceError, process_in};

use super::{Tidied, Workspaces, look::side_by_side};

/// The recorded reason if large ignored files are rescued too, so that the command that continues after a crash does
/// the same.
const KEEPS_IGNORED: &str = "large ignored files are saved too";

impl Workspaces<'_> {
    /// Rescues everything in a workspace, without changing it; with `ignored`, large ignored files too.
    pub fn rescue(&self, text: &str, ignored: bool) -> Result<(Workspace, Rescued), Error> {
        let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
        if workspace.state == WorkspaceState::Removed {
            let wanted = "nothing is left to save; toft ws list lists its rescues".to_owned();
            return Err(Refusal::WrongState { id: workspace.name, state: "removed".to_owned(), wanted }.into());
        }
        let _turn = self.backend.turn(&workspace)?;
        let rescued = self.backend.rescue(&workspace, ignored)?;
        Ok((workspace, rescued))
    }

    /// Every rescue with its workspace, if the store still knows it, oldest first; only of one workspace if it is
    /// named.
    pub fn all_rescues(&self, text: Option<&str>) -> Result<Vec<(Rescue, Option<Workspace>)>, Error> {
        if let Some(text) = text {
            let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
            let rescues = self.backend.rescues(&workspace)?;
            return Ok(rescues.into_iter().map(|rescue| (rescue, Some(workspace.clone()))).collect());
        }
        let rows = self.work.perform(List { scope: self.work.scope(), all: true, limit: 0 })?;
        let known: std::collections::BTreeMap<String, Workspace> =
            rows.into_iter().map(|row| (row.workspace.id.to_string(), row.workspace)).collect();
        let with_workspace = |rescue: Rescue| {
            let workspace = known.get(&rescue.workspace).cloned();
            (rescue, workspace)
        };
        Ok(self.backend.all_rescues()?.into_iter().map(with_workspace).collect())
    }

    /// Deletes a rescue of a workspace, by number or commit; returns it.
    pub fn delete_rescue(&self, text: &str, at: &str) -> Result<(Rescue, Workspace), Error> {
        let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
        let _turn = self.backend.turn(&workspace)?;
        let rescue = find_rescue(&workspace, self.backend.rescues(&workspace)?, at)?;
        if is_needed(&workspace, &rescue) {
            let wanted = "its rescue is needed until that has ended".to_owned();
            let state = workspace.state.as_str().to_owned();
            return Err(Refusal::WrongState { id: workspace.name, state, wanted }.into());
        }
        self.backend.delete_rescue(&rescue)?;
        Ok((rescue, workspace))
    }

    /// Deletes rescues that are older than the configured age; by default there is none.
    fn expire_rescues(&self, try_only: bool) -> Result<Vec<Tidied>, Error> {
        let Some(age) = self.work.located().workspaces.rescue_max_age else { return Ok(Vec::new()) };
        let now = self.now()?;
        let mut gone = Vec::new();
        for (rescue, workspace) in self.all_rescues(None)? {
            let needed = workspace.as_ref().is_some_and(|workspace| is_needed(workspace, &rescue));
            if needed || now.since(rescue.made) < age {
                continue;
            }
            if !try_only {
                self.backend.delete_rescue(&rescue)?;
            }
            let name = workspace.map_or_else(|| rescue.workspace.clone(), |workspace| workspace.name);
            let name = format!("{name} --at {}", rescue.number);
            let why = format!("a rescue of {}, older than rescue_max_age", shown(rescue.bytes));
            gone.push(Tidied { name, gone: true, why, ..Tidied::default() });
        }
        Ok(gone)
    }

    /// Removes a workspace. With `rescue`, content that exists nowhere else is rescued first; otherwise it prevents the
    /// removal.
    pub fn remove(
        &self,
        actor: &str,
        text: &str,
        fence: Option<Fence>,
        rescue: bool,
        ignored: bool,
    ) -> Result<Tidied, Error> {
        let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
        if workspace.kind == WorkspaceKind::InPlace {
            let workspace = self.work.perform_as(actor, None, Unregister { id: workspace.id.to_string(), fence })?;
            let why = format!("no longer a workspace; {} is not changed", workspace.path);
            return Ok(Tidied { gone: true, ..Tidied::stays(&workspace.name, why) });
        }
        if workspace.host == self.host()
            && let Some((clone, help)) = self.other_clone(&workspace)
        {
            let state = format!("a workspace of another clone, {clone}");
            let wanted = format!("remove it from there: {help}");
            return Err(Refusal::WrongState { id: workspace.name, state, wanted }.into());
        }
        let done = self.remove_own(actor, &workspace, fence, Removal { rescue, ignored });
        self.backend.sweep(&self.root)?;
        done
    }

    /// Removes the workspace of earlier work of this name if that has landed and nothing else is in it. Work begins anew on the
    /// target as it is now: what was taken back there would not come again from commits that were merged before.
    pub(super) fn clear_landed(&self, actor: &str, name: &str, task: &TaskId) -> Result<(), Error> {
        let repository = self.work.located().repository.clone();
        let rows = self.work.perform(facts::WorkspaceRows { repository, live: true })?;
        let over = |row: &&Workspace| {
            let other = row.task.as_ref().is_some_and(|other| other != task);
            let plain = !row.pinned && row.kind != WorkspaceKind::InPlace && row.state == WorkspaceState::Ready;
            row.name == name && row.host == self.host() && other && plain && Path::new(&row.path).is_dir()
        };
        let Some(row) = rows.iter().find(over).filter(|row| self.other_clone(row).is_none()) else { return Ok(()) };
        let survey = self.backend.survey(row)?;
        if survey.fate() != Fate::Go || !survey.has_landed() {
            return Ok(());
        }
        match self.remove_own(actor, row, None, Removal { rescue: false, ignored: false }) {
            Err(Error::Store(error)) => Err(error.into()),
            // If something holds it, it is used as it is.
            _ => Ok(()),
        }
    }

    fn remove_own(
        &self,
        actor: &str,
        workspace: &Workspace,
        fence: Option<Fence>,
        may: Removal,
    ) -> Result<Tidied, Error> {
        nobody_in(Path::new(&workspace.path))?;
        let reason = may.ignored.then(|| KEEPS_IGNORED.to_owned());
        let removing = Move { fence, reason, ..Move::to(&workspace.id, WorkspaceState::Removing) };
        let workspace = self.work.perform_as(actor, None, removing)?;
        self.take_down(actor, &workspace, may)
    }

    fn take_down(&self, actor: &str, workspace: &Workspace, may: Removal) -> Result<Tidied, Error> {
        let _turn = self.backend.turn(workspace)?;
        let known = self.work.perform(Show { id: workspace.id.to_string() })?.workspace;
        if known.state != WorkspaceState::Removing {
            let done = known.state == WorkspaceState::Removed;
            let why = if done { "another command removed it" } else { "another command kept it" };
            return Ok(Tidied { gone: done, rescue: known.rescue, ..Tidied::stays(&known.name, why.into()) });
        }
        // A rescue of an interrupted restore is kept too, but never replaces the rescue that it came from.
        let holds = |removed: &Removed| {
            let rescue = removed.rescue.as_ref().filter(|rescue| !rescue.torn || known.rescue.is_none());
            rescue.map(|rescue| rescue.commit.clone())
        };
        let removed = self.backend.remove(workspace, may, |removed| {
            // Record the rescue, and the files that it does not contain, before anything is deleted.
            if removed.rescue.is_none() && removed.left.is_empty() {
                return Ok(());
            }
            let (rescue, left) = (holds(removed), removed.left.clone());
            let reason = may.ignored.then(|| KEEPS_IGNORED.to_owned());
            let request = Move { rescue, left, reason, ..Move::to(&workspace.id, WorkspaceState::Removing) };
            let noted = self.work.perform_as(actor, None, request);
            noted.map(drop).map_err(|error| WorkspaceError::Stays { why: error.to_string() })
        });
        match removed {
            Ok(removed) => {
                let rescue = holds(&removed);
                let request = Move { rescue, ..Move::to(&workspace.id, WorkspaceState::Removed) };
                let workspace = self.work.perform_as(actor, None, request)?;
                let lands = removed.branch_deleted && removed.survey.as_ref().is_some_and(Survey::has_landed);
                let kept = removed.survey.as_ref().and_then(|survey| survey.kept_by_branch(&workspace));
                let seen = removed.survey.map_or_else(|| "not there".into(), |survey| survey.summary());
                Ok(Tidied {
                    gone: true,
                    deleted_branch: workspace.branch.filter(|_| lands),
                    kept,
                    rescue: workspace.rescue,
                    holds: removed.rescue.map(|rescue| rescue.holds).filter(|holds| !holds.is_empty()),
                    left: workspace.left,
                    ..Tidied::stays(&workspace.name, removed.note.unwrap_or(seen))
                })
            }
            Err(error) => {
                if self.backend.is_here(workspace, Path::new(&workspace.path)) {
                    let back =
                        Move { reason: Some(error.to_string()), ..Move::to(&workspace.id, WorkspaceState::Ready) };
                    self.work.perform_as(actor, None, back)?;
                }
                Err(error.into())
            }
        }
    }

    /// Removes unused workspaces, after a rescue of content that exists nowhere else, and continues interrupted
    /// removals. With `try_only`, only reports what would be removed.
    pub fn tidy(
        &self,
        actor: &str,
        max_age: Option<Duration>,
        try_only: bool,
        mut progress: impl FnMut(&str),
    ) -> Result<Vec<Tidied>, Error> {
        let rules = &self.work.located().workspaces;
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let sizes = rows.iter().filter(|_| rules.max_bytes.is_some()).map(|row| own_size(&row.workspace));
        let mut limits = Limits { now: self.now()?, max_age, max_bytes: rules.max_bytes, bytes: sizes.sum() };
        let oldest_first: Vec<&Listed> = rows.iter().rev().collect();
        let each = |listed: &Listed, limits: &mut Limits| match self.tidy_one(actor, listed, limits, try_only) {
            Err(Error::Store(error)) => Err(Error::from(error)),
            done => Ok(done.unwrap_or_else(|error| Tidied::stays(&listed.workspace.name, error.to_string()))),
        };
        let mut tidied: Vec<Tidied> = if limits.max_bytes.is_none() {
            // The result for one workspace does not depend on the others.
            progress(&format!("{} workspaces", rows.len()));
            let done = side_by_side(&oldest_first, |listed| each(listed, &mut limits.clone()));
            done.into_iter().collect::<Result<_, Error>>()?
        } else {
            let mut one = |listed: &&Listed| {
                progress(&listed.workspace.name);
                each(listed, &mut limits)
            };
            oldest_first.iter().map(&mut one).collect::<Result<_, Error>>()?
        };
        tidied.extend(self.expire_rescues(try_only)?);
        if !try_only {
            self.tidy_bases()?;
            tidied.extend(self.drop_landed_branches()?);
            self.backend.sweep(&self.root)?;
        }
        Ok(tidied)
    }

    /// Deletes branches of workspaces that went before, once their work has landed.
    fn drop_landed_branches(&self) -> Result<Vec<Tidied>, Error> {
        let refs = self.backend.refs()?;
        let rows = self.rows_ever()?;
        let used = |branch: &Option<String>| rows.iter().any(|row| row.state.live() && row.branch == *branch);
        let gone = |row: &&Workspace| row.state == WorkspaceState::Removed && row.host == self.host();
        let mut dropped = Vec::new();
        for row in rows.iter().filter(gone).filter(|row| row.own_branch && !used(&row.branch)) {
            // A branch that cannot be examined is kept.
            if self.backend.drop_landed(row, &refs).unwrap_or_default() {
                let why = "removed before; its work has landed since".to_owned();
                let deleted_branch = row.branch.clone();
                dropped.push(Tidied { gone: true, deleted_branch, ..Tidied::stays(&row.name, why) });
            }
        }
        Ok(dropped)
    }

    /// Every workspace that this repository ever had, newest first.
    pub(super) fn rows_ever(&self) -> Result<Vec<Workspace>, Error> {
        let repository = self.work.located().repository.clone();
        self.work.perform(facts::WorkspaceRows { repository, live: false })
    }

    fn tidy_one(&self, actor: &str, listed: &Listed, limits: &mut Limits, try_only: bool) -> Result<Tidied, Error> {
        let workspace = &listed.workspace;
        let name = &workspace.name;
        if workspace.host == self.host()
            && let Some((clone, help)) = self.other_clone(workspace)
        {
            return Ok(Tidied { help: Some(help), ..Tidied::stays(name, format!("belongs to the clone {clone}")) });
        }
        let begun = matches!(workspace.state, WorkspaceState::Removing | WorkspaceState::Provisioning);
        if begun && workspace.host == self.host() {
            return self.go_on(actor, workspace, try_only);
        }
        let idle = listed.idle(self.host(), limits.now, limits.max_age);
        let plain = workspace.kind == WorkspaceKind::Worktree && workspace.overlay_base.is_none();
        // The worktree may have been moved by hand and still be in use, so git's data of it is removed only by age.
        if idle.is_ok() && plain && limits.too_old(workspace) && fs::symlink_metadata(&workspace.path).is_err() {
            return self.tidy_missing(actor, workspace, try_only);
        }
        if let Some((trouble, help)) = self.trouble(listed) {
            let why = idle.map_or_else(|held| format!("{held}; {trouble}"), |()| trouble.clone());
            return Ok(Tidied { trouble: Some(trouble), help, ..Tidied::stays(name, why) });
        }
        if let Err(why) = idle {
            return Ok(Tidied::stays(name, why));
        }
        let survey = self.backend.survey(workspace)?;
        let why = survey.summary();
        let (rescue, too_old) = match limits.judge(workspace, &survey) {
            Fate::Stay(why) => return Ok(Tidied::stays(name, why)),
            _ if try_only => {
                let left = self.backend.leaves(workspace)?;
                let lands = workspace.own_branch && survey.has_landed();
                let deleted_branch = workspace.branch.clone().filter(|_| lands);
                let kept = survey.kept_by_branch(workspace);
                return Ok(Tidied { gone: true, left, deleted_branch, kept, ..Tidied::stays(name, why) });
            }
            fate => (fate == Fate::Rescue, limits.too_old(workspace)),
        };
        let before = limits.max_bytes.map(|_| own_size(workspace)).unwrap_or_default();
        if rescue && !too_old {
            // First delete directories that tools can rebuild; that may be enough.
            nobody_in(Path::new(&workspace.path))?;
            let shed = {
                let _turn = self.backend.turn(workspace)?;
                self.backend.shed(workspace)?
            };
            let freed = before.saturating_sub(own_size(workspace));
            if limits.bytes.saturating_sub(freed) <= limits.max_bytes.unwrap_or(u64::MAX) {
                limits.bytes = limits.bytes.saturating_sub(freed);
                let why = format!("{why}; deleted, can be rebuilt: {}", Left::summary(&shed));
                return Ok(Tidied { left: shed, ..Tidied::stays(name, why) });
            }
        }
        // For a workspace that is too old, content that is only found now, such as a repository in an ignored
        // directory, is rescued too.
        let done = self.remove_own(actor, workspace, None, Removal { rescue: rescue || too_old, ignored: false })?;
        limits.bytes = limits.bytes.saturating_sub(before);
        Ok(done)
    }

    /// A workspace whose directory was moved or deleted by hand: git's data about it is rescued.
    fn tidy_missing(&self, actor: &str, workspace: &Workspace, try_only: bool) -> Result<Tidied, Error> {
        let seen = self.backend.survey_missing(workspace)?;
        let by_hand = "its directory was moved or deleted by hand";
        let why = seen.as_ref().map_or_else(|| by_hand.to_owned(), |seen| format!("{by_hand}: {}", seen.summary()));
        let only_here = seen.is_some_and(|seen| seen.only_here());
        if try_only {
            return Ok(Tidied { gone: true, ..Tidied::stays(&workspace.name, why) });
        }
        self.remove(actor, workspace.id.as_str(), None, only_here, false)
    }

    /// Removes bases that no workspace uses.
    fn tidy_bases(&self) -> Result<(), Error> {
        let _turn = self.backend.bases_turn()?;
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let used: Vec<String> = rows.into_iter().filter_map(|row| row.workspace.overlay_base).collect();
        self.backend.tidy_bases(&self.root, &used)?;
        Ok(())
    }

    /// Continues an interrupted removal, or removes an interrupted creation or restore.
    fn go_on(&self, actor: &str, workspace: &Workspace, try_only: bool) -> Result<Tidied, Error> {
        let begun = Tidied { gone: true, ..Tidied::stays(&workspace.name, "its removal was interrupted".into()) };
        if try_only {
            return Ok(begun);
        }
        match workspace.state {
            WorkspaceState::Removing => {
                let ignored = workspace.reason.as_deref() == Some(KEEPS_IGNORED);
                self.take_down(actor, workspace, Removal { rescue: true, ignored })
            }
            _ => {
                let making = || Tidied { gone: false, why: "another command is creating it".into(), ..begun.clone() };
                let Some(_turn) = self.backend.free_turn(workspace)? else { return Ok(making()) };
                let known = self.work.perform(Show { id: workspace.id.to_string() })?.workspace;
                if known.state != WorkspaceState::Provisioning {
                    return Ok(making());
                }
                nobody_in(Path::new(&workspace.path))?;
                let Removed { rescue, .. } = self.backend.clear_begun(workspace)?;
                // An interrupted restore keeps its original rescue.
                let rescue = rescue.filter(|_| workspace.rescue.is_none()).map(|rescue| rescue.commit);
                let why = "its creation was interrupted".to_owned();
                let (id, reason) = (&workspace.id, Some(why.clone()));
                let request = Move { reason, rescue, ..Move::to(id, WorkspaceState::Removed) };
                let workspace = self.work.perform_as(actor, None, request)?;
                Ok(Tidied { why, rescue: workspace.rescue, ..begun })
            }
        }
    }
}

/// Refuses if a process uses a directory.
fn nobody_in(path: &Path) -> Result<(), Error> {
    match process_in(path) {
        Some(pid) => Err(WorkspaceError::InUse { pids: vec![pid], path: path.to_owned() }.into()),
        None => Ok(()),
    }
}

/// The rescue that `at` names: its number, or at least four characters of its commit.
pub(super) fn find_rescue(workspace: &Workspace, rescues: Vec<Rescue>, at: &str) -> Result<Rescue, WorkspaceError> {
    let known: Vec<String> = rescues.iter().map(|rescue| rescue.number.to_string()).collect();
    let fits = |rescue: &Rescue| rescue.number.to_string() == at || at.len() >= 4 && rescue.commit.starts_with(at);
    let found = rescues.into_iter().find(fits);
    found.ok_or_else(|| WorkspaceError::NoRescue { name: workspace.name.clone(), known })
}

/// Whether an interrupted operation needs this rescue to complete.
fn is_needed(workspace: &Workspace, rescue: &Rescue) -> bool {
    let begun = !matches!(workspace.state, WorkspaceState::Ready | WorkspaceState::Removed);
    begun && workspace.rescue.as_ref() == Some(&rescue.commit)
}

/// The size of a workspace's own files on disk.
pub fn own_size(workspace: &Workspace) -> u64 {
    size(&WorkspaceBackend::own_bytes_at(workspace))
}

/// The size of a directory on disk.
fn size(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let mut look = vec![dir.to_owned()];
    while let Some(dir) = look.pop() {
        // Files that cannot be read do not count.
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            bytes += meta.blocks() * 512;
            if meta.is_dir() {
                look.push(entry.path());
            }
        }
    }
    bytes
}
