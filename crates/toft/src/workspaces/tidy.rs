//! Taking workspaces down: one, or all that nobody needs.

use std::{fs, path::Path, time::Duration};

use toft_core::{
    lease::Fence,
    refusal::Refusal,
    store::{self, WorkspaceQuery},
    verbs::workspace::{List, Listed, Move, Show, Unregister},
    workspace::{Fate, Limits, Workspace, WorkspaceKind, WorkspaceState},
};
use toft_vcs::workspace::{Ground, Removed, WorkspaceError, process_in};

use super::{Tidied, Workspaces, look::side_by_side};
use crate::error::Error;

impl Workspaces<'_> {
    /// Puts everything in a workspace away, and leaves it as it is.
    pub fn rescue(&self, text: &str) -> Result<(Workspace, String), Error> {
        let workspace = self.toft.perform(Show { id: text.to_owned() })?.workspace;
        if workspace.state == WorkspaceState::Removed {
            let wanted = "there is nothing left to put away; toft ws show lists what was".to_owned();
            return Err(Refusal::WrongState { id: workspace.name, state: "removed".to_owned(), wanted }.into());
        }
        let _turn = self.ground.turn(&workspace)?;
        let commit = self.ground.rescue(&workspace)?;
        Ok((workspace, commit))
    }

    /// Takes a workspace down. What is only in it is put away first, if that is wanted; else it stays.
    pub fn remove(&self, actor: &str, text: &str, fence: Option<Fence>, rescue: bool) -> Result<Tidied, Error> {
        let workspace = self.toft.perform(Show { id: text.to_owned() })?.workspace;
        if workspace.kind == WorkspaceKind::InPlace {
            let workspace = self.toft.perform_as(actor, None, Unregister { id: workspace.id.to_string(), fence })?;
            let why = format!("no longer a workspace; {} stays as it is", workspace.path);
            return Ok(Tidied { gone: true, ..Tidied::stays(&workspace.name, why) });
        }
        let done = self.remove_own(actor, &workspace, fence, rescue);
        self.ground.sweep(&self.root)?;
        done
    }

    fn remove_own(
        &self,
        actor: &str,
        workspace: &Workspace,
        fence: Option<Fence>,
        rescue: bool,
    ) -> Result<Tidied, Error> {
        nobody_in(Path::new(&workspace.path))?;
        let removing = Move { fence, ..Move::to(&workspace.id, WorkspaceState::Removing) };
        let workspace = self.toft.perform_as(actor, None, removing)?;
        self.take_down(actor, &workspace, rescue)
    }

    fn take_down(&self, actor: &str, workspace: &Workspace, rescue: bool) -> Result<Tidied, Error> {
        let _turn = self.ground.turn(workspace)?;
        let known = self.toft.perform(Show { id: workspace.id.to_string() })?.workspace;
        if known.state != WorkspaceState::Removing {
            let done = known.state == WorkspaceState::Removed;
            let why = if done { "somebody else took it down" } else { "somebody kept it" };
            return Ok(Tidied { gone: done, rescue: known.rescue, ..Tidied::stays(&known.name, why.into()) });
        }
        let removed = self.ground.remove(workspace, rescue, |commit| {
            // What holds it is known before it is deleted.
            let rescue = Some(commit.to_owned());
            let request = Move { rescue, ..Move::to(&workspace.id, WorkspaceState::Removing) };
            let noted = self.toft.perform_as(actor, None, request);
            noted.map(drop).map_err(|error| WorkspaceError::Stays { why: error.to_string() })
        });
        match removed {
            Ok(Removed { rescue, survey, .. }) => {
                let request = Move { rescue, ..Move::to(&workspace.id, WorkspaceState::Removed) };
                let workspace = self.toft.perform_as(actor, None, request)?;
                let why = survey.map_or_else(|| "gone".into(), |survey| survey.summary());
                Ok(Tidied { gone: true, rescue: workspace.rescue, ..Tidied::stays(&workspace.name, why) })
            }
            Err(error) => {
                if self.ground.is_here(workspace, Path::new(&workspace.path)) {
                    let back =
                        Move { reason: Some(error.to_string()), ..Move::to(&workspace.id, WorkspaceState::Ready) };
                    self.toft.perform_as(actor, None, back)?;
                }
                Err(error.into())
            }
        }
    }

    /// Takes down what nobody needs and what is nowhere else only after it was put away; goes on with what was begun.
    /// With `try_only` says what would go.
    pub fn tidy(
        &self,
        actor: &str,
        max_age: Option<Duration>,
        try_only: bool,
        mut progress: impl FnMut(&str),
    ) -> Result<Vec<Tidied>, Error> {
        let rules = &self.toft.located().workspaces;
        let rows = self.toft.perform(List { scope: self.toft.scope(), all: false, limit: 0 })?;
        let sizes = rows.iter().filter(|_| rules.max_bytes.is_some()).map(|row| own_size(&row.workspace));
        let (max_age, max_bytes, bytes) = (max_age.or(rules.max_age), rules.max_bytes, sizes.sum());
        let count = rows.iter().filter(|row| row.workspace.host == self.host()).count();
        let mut limits = Limits { now: self.now()?, max_age, max_bytes, max_count: rules.max_count, bytes, count };
        let oldest_first: Vec<&Listed> = rows.iter().rev().collect();
        let each = |listed: &Listed, limits: &mut Limits| match self.tidy_one(actor, listed, limits, try_only) {
            Err(Error::Store(error)) => Err(Error::from(error)),
            done => Ok(done.unwrap_or_else(|error| Tidied::stays(&listed.workspace.name, error.to_string()))),
        };
        let tidied: Vec<Tidied> = if limits.max_bytes.is_none() && limits.max_count.is_none() {
            // What becomes of one does not depend on the others.
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
        if !try_only {
            self.tidy_bases()?;
            self.drop_landed_branches()?;
            self.ground.sweep(&self.root)?;
        }
        Ok(tidied)
    }

    /// Deletes branches of workspaces that are gone, once their work has landed.
    fn drop_landed_branches(&self) -> Result<(), Error> {
        let refs = self.ground.refs()?;
        let rows = self.rows_ever()?;
        let used = |branch: &Option<String>| rows.iter().any(|row| row.state.live() && row.branch == *branch);
        let gone = |row: &&Workspace| row.state == WorkspaceState::Removed && row.host == self.host();
        for row in rows.iter().filter(gone).filter(|row| row.own_branch && !used(&row.branch)) {
            // A branch that cannot be judged stays.
            let _ = self.ground.drop_landed(row, &refs);
        }
        Ok(())
    }

    /// Every workspace that this repository ever had, newest first.
    pub(super) fn rows_ever(&self) -> Result<Vec<Workspace>, Error> {
        let repository = self.toft.located().repository.clone();
        let query = WorkspaceQuery { repository, ..WorkspaceQuery::default() };
        Ok(store::ask(self.toft.store(), |tx| tx.workspaces(&query))?)
    }

    fn tidy_one(&self, actor: &str, listed: &Listed, limits: &mut Limits, try_only: bool) -> Result<Tidied, Error> {
        let workspace = &listed.workspace;
        let name = &workspace.name;
        let begun = matches!(workspace.state, WorkspaceState::Removing | WorkspaceState::Provisioning);
        if begun && workspace.host == self.host() {
            return self.go_on(actor, workspace, try_only);
        }
        let idle = listed.idle(self.host(), limits.now, limits.max_age);
        if let Some((trouble, help)) = self.trouble(listed) {
            let why = idle.map_or_else(|held| format!("{held}; {trouble}"), |()| trouble.clone());
            return Ok(Tidied { trouble: Some(trouble), help, ..Tidied::stays(name, why) });
        }
        if let Err(why) = idle {
            return Ok(Tidied::stays(name, why));
        }
        let survey = self.ground.survey(workspace)?;
        let why = survey.summary();
        let (rescue, too_old) = match limits.judge(workspace, &survey) {
            Fate::Stay(why) => return Ok(Tidied::stays(name, why)),
            _ if try_only => return Ok(Tidied { gone: true, ..Tidied::stays(name, why) }),
            fate => (fate == Fate::Rescue, limits.too_old(workspace)),
        };
        let before = limits.max_bytes.map(|_| own_size(workspace)).unwrap_or_default();
        if rescue && !too_old {
            // What can be built again goes first; that may be enough.
            nobody_in(Path::new(&workspace.path))?;
            {
                let _turn = self.ground.turn(workspace)?;
                self.ground.shed(workspace)?;
            }
            let freed = before.saturating_sub(own_size(workspace));
            if limits.bytes.saturating_sub(freed) <= limits.max_bytes.unwrap_or(u64::MAX) {
                limits.bytes = limits.bytes.saturating_sub(freed);
                return Ok(Tidied::stays(name, format!("{why}; its artefacts are gone")));
            }
        }
        let done = self.remove_own(actor, workspace, None, rescue)?;
        limits.bytes = limits.bytes.saturating_sub(before);
        limits.count = limits.count.saturating_sub(1);
        Ok(done)
    }

    /// Takes away frozen checkouts that nobody stands on.
    fn tidy_bases(&self) -> Result<(), Error> {
        let _turn = self.ground.bases_turn()?;
        let rows = self.toft.perform(List { scope: self.toft.scope(), all: false, limit: 0 })?;
        let used: Vec<String> = rows.into_iter().filter_map(|row| row.workspace.stands_on).collect();
        self.ground.tidy_bases(&self.root, &used)?;
        Ok(())
    }

    /// Goes on with what somebody began and did not come to the end of.
    fn go_on(&self, actor: &str, workspace: &Workspace, try_only: bool) -> Result<Tidied, Error> {
        let begun = Tidied { gone: true, ..Tidied::stays(&workspace.name, "begun before".into()) };
        if try_only {
            return Ok(begun);
        }
        match workspace.state {
            WorkspaceState::Removing => self.take_down(actor, workspace, true),
            _ => {
                let making = || Tidied { gone: false, why: "somebody is making it".into(), ..begun.clone() };
                let Some(_turn) = self.ground.free_turn(workspace)? else { return Ok(making()) };
                let known = self.toft.perform(Show { id: workspace.id.to_string() })?.workspace;
                if known.state != WorkspaceState::Provisioning {
                    return Ok(making());
                }
                nobody_in(Path::new(&workspace.path))?;
                let Removed { rescue, .. } = self.ground.clear_begun(workspace)?;
                // One that was being brought back is brought back from what it was, not from how far that came.
                let rescue = workspace.rescue.is_none().then_some(rescue).flatten();
                let why = "it was never handed over".to_owned();
                let (id, reason) = (&workspace.id, Some(why.clone()));
                let request = Move { reason, rescue, ..Move::to(id, WorkspaceState::Removed) };
                let workspace = self.toft.perform_as(actor, None, request)?;
                Ok(Tidied { why, rescue: workspace.rescue, ..begun })
            }
        }
    }
}

/// Nobody is in a directory.
fn nobody_in(path: &Path) -> Result<(), Error> {
    match process_in(path) {
        Some(pid) => Err(WorkspaceError::InUse { pids: vec![pid], path: path.to_owned() }.into()),
        None => Ok(()),
    }
}

/// How much a workspace takes on disk by itself.
pub fn own_size(workspace: &Workspace) -> u64 {
    size(&Ground::own_bytes_at(workspace))
}

/// How much a directory takes on disk.
fn size(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let mut look = vec![dir.to_owned()];
    while let Some(dir) = look.pop() {
        // What cannot be read takes no part.
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
