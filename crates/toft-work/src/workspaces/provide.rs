//! Creates workspaces: new ones, ones in advance, restored ones, adopted ones.

use std::{fs, path::Path, time::SystemTime};

use toft_core::{
    refusal::Refusal,
    verbs::workspace::{List, Move, Name, Named, Provide, Show},
    workspace::{Workspace, WorkspaceKind, WorkspaceState},
};
use toft_plan::Plan;
use toft_session::{config::OverlayMode, error::Error, session::random_ids, setup::Setup};
use toft_vcs::{
    MAIN, RepoLock,
    workspace::{Made, Removed, Sharing, Start, WorkspaceBackend, WorkspaceError, behind_link},
};

use super::{Given, Wanted, Workspaces, tidy::find_rescue};
use crate::setup;

/// Minimum number of characters of an id in the name of a branch; more if another branch has the same.
const SHORTEST: usize = 4;
/// Maximum length of a title in the name of a branch.
const LONGEST_SLUG: usize = 40;

/// The base of a new workspace.
#[derive(Default)]
struct OverlayBase {
    /// The lock on bases.
    turn: Option<RepoLock>,
    /// The base below an overlay.
    overlay_base: Option<String>,
    /// The base that is copied.
    copy_of: Option<String>,
    /// Why no faster way of sharing is used.
    why: Option<String>,
}

impl Workspaces<'_> {
    /// Returns the workspace for this work, creating it if needed. A failed setup removes the directory, or quarantines it.
    /// `step` receives progress messages.
    pub fn provide(&self, actor: &str, wanted: Wanted, mut step: impl FnMut(&str)) -> Result<Given, Error> {
        let named = match &wanted.work {
            Some(work) => self.work.perform_as(actor, None, Name { id: work.clone() })?,
            None => {
                let name = String::new();
                Named { name, task: None, commit: None, issue: None, needs: Vec::new(), title: None }
            }
        };
        let name = match &wanted.name {
            Some(name) if file_name(name) != *name => return Err(WorkspaceError::BadName { text: name.clone() }.into()),
            Some(name) => name.clone(),
            None => file_name(&named.name),
        };
        if let Some(task) = named.task.as_ref().filter(|_| !wanted.in_place) {
            self.clear_of_earlier_attempts(&name, task)?;
            self.clear_landed(actor, &name, task)?;
        }
        let setup = if wanted.plain { &Setup::default() } else { &self.work.located().workspaces.setup };
        if !setup.trusted(&self.id) {
            return Err(Error::Untrusted { doing: "setting a workspace up", count: setup.commands().len() });
        }
        let mut start = self.backend.start(wanted.base.as_deref())?;
        if wanted.base.is_none() {
            self.work.take_commits(&named.commit.iter().chain(&named.needs).cloned().collect::<Vec<_>>())?;
        }
        if let (None, Some(commit)) = (&wanted.base, &named.commit)
            && let Ok(last) = self.backend.start(Some(commit))
        {
            // Start where the last holder stopped, if this machine has the commit.
            start.commit = last.commit;
        }
        let mut notes = Vec::new();
        if wanted.base.is_none() && named.commit.is_none() {
            // What the user has not pushed is not pushed with an agent's work.
            let (commit, lacks) = self.work.start_of_pushed_work(start.commit)?;
            (start.commit, notes) = (commit, lacks.into_iter().collect());
        }
        if wanted.base.is_none() && named.commit.is_none() {
            let needs = self.needed(&named)?;
            let (commit, more) = self.backend.stack(start.commit, &needs)?;
            start.commit = commit;
            notes.extend(more);
        }
        let commit = start.commit.clone();
        let OverlayBase { turn: bases, overlay_base, copy_of, why } = self.footing(&wanted, &commit, &mut step)?;
        notes.extend(why);
        let task = named.task.map(|task| task.to_string());
        let branch = self.branch_for(&wanted, &name, named.issue.as_deref(), named.title.as_deref())?;
        let request = Provide { task, overlay_base, ..self.request(name, branch, wanted, start)? };
        let provided = self.work.perform_as(actor, None, request)?;
        // Keep the lock until the copy is complete.
        let _bases = bases.filter(|_| copy_of.is_some());
        let mut workspace = provided.workspace;
        let _turn = self.backend.turn(&workspace)?;
        // Another process may have created it while this one waited.
        workspace = self.work.perform(Show { id: workspace.id.to_string() })?.workspace;
        if workspace.state == WorkspaceState::Ready {
            let notes = self.backend.open(&workspace)?;
            if Path::new(&workspace.path).is_dir() {
                return Ok(Given { workspace, existing: true, notes });
            }
        }
        if provided.begun {
            workspace.base = commit;
        }
        self.make(actor, &workspace, |backend| {
            step("checking out");
            let log = self.log(&workspace);
            let ready = || fs::metadata(&log).and_then(|log| log.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let made = match provided.ahead.then(|| backend.take_over(&workspace, ready())) {
                Some(Ok(made)) => made,
                Some(Err(WorkspaceError::Stays { why })) => {
                    let Removed { rescue, .. } = backend.clear_begun(&workspace)?;
                    let kept = rescue.map_or("nothing had to be saved".to_owned(), |rescue| {
                        format!("its content is saved as {}", rescue.commit.get(..12).unwrap_or(&rescue.commit))
                    });
                    let mut made = backend.provide(&workspace, copy_of.as_deref())?;
                    made.notes.push(format!("a new one was created: {why}; {kept}"));
                    made
                }
                _ => {
                    if provided.begun {
                        // An earlier command was interrupted while it created the workspace.
                        backend.clear_begun(&workspace)?;
                    }
                    backend.provide(&workspace, copy_of.as_deref())?
                }
            };
            let missing = setup::run(setup, backend, &self.source, &workspace, &log, step).or_else(|error| {
                // No caller has received it; its log contains the reason.
                backend.clear_begun(&workspace)?;
                Err(error)
            })?;
            Ok(Made { notes: notes.into_iter().chain(made.notes).chain(missing).collect() })
        })
    }

    /// The evidence commits of the tasks that some work depends on.
    fn needed(&self, named: &Named) -> Result<Vec<String>, Error> {
        let mut needs = named.needs.clone();
        if let (Some(plan), Some(issue)) = (Plan::open(self.work.session())?, &named.issue)
            && let Some(found) = plan.known(issue)?
        {
            for on in found.issue.blockers() {
                let closed = plan.known(on)?.and_then(|found| found.issue.closed).and_then(|closed| closed.outcome);
                needs.extend(closed.and_then(|outcome| outcome["evidence"]["commit"].as_str().map(str::to_owned)));
            }
        }
        needs.retain(|commit| commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()));
        needs.sort();
        needs.dedup();
        Ok(needs)
    }

    /// The branch of a new workspace, and whether toft creates it. A branch of an earlier workspace of the same name is
    /// continued, unless its work has landed: then a new one is created.
    fn branch_for(
        &self,
        wanted: &Wanted,
        name: &str,
        issue: Option<&str>,
        title: Option<&str>,
    ) -> Result<(String, bool), Error> {
        if wanted.pooled || wanted.in_place || !self.backend.has_branches() {
            return Ok((name.to_owned(), false));
        }
        let ours = |row: &Workspace| row.name == name && row.own_branch && row.host == self.host();
        let rows = self.rows_ever()?;
        let refs = self.backend.refs()?;
        for row in rows.iter().filter(|row| ours(row)) {
            let Some(branch) = row.branch.clone().filter(|branch| WorkspaceBackend::knows_branch(&refs, branch)) else {
                continue;
            };
            let used = rows.iter().any(|other| other.state.live() && other.branch.as_ref() == Some(&branch));
            if used || row.state.live() || !self.backend.drop_landed(row, &refs)? {
                return Ok((branch, true));
            }
        }
        let free = |branch: &str| -> Result<bool, Error> { Ok(!self.backend.has_branch(branch)?) };
        if wanted.name.is_some() {
            return Ok((name.to_owned(), free(name)?));
        }
        let title = match (title, issue, Plan::open(self.work.session())?) {
            (Some(title), ..) => Some(title.to_owned()),
            (None, Some(issue), Some(plan)) => plan.known(issue)?.map(|found| found.issue.title),
            _ => None,
        };
        // A branch named `toft` prevents branches below `toft/`.
        let below = if free("toft")? { "toft/" } else { "" };
        for length in SHORTEST..=name.len() {
            let branch = format!("{below}{}", branch_name(name, length, title.as_deref().unwrap_or_default()));
            if free(&branch)? {
                return Ok((branch, true));
            }
        }
        Ok((name.to_owned(), free(name)?))
    }

    /// The request to the store.
    fn request(
        &self,
        name: String,
        (own, own_branch): (String, bool),
        wanted: Wanted,
        start: Start,
    ) -> Result<Provide, Error> {
        let rules = &self.work.located().workspaces;
        let (path, kind, branch) = match (wanted.in_place, wanted.clone) {
            (true, _) => (self.source.clone(), WorkspaceKind::InPlace, self.backend.branch_at(&self.source)?),
            (false, true) => (self.root.join(&name), WorkspaceKind::Clone, Some(own)),
            (false, false) => (self.root.join(&name), WorkspaceKind::Worktree, Some(own)),
        };
        Ok(Provide {
            kind,
            path: path.display().to_string(),
            source: self.source.display().to_string(),
            own_branch: !wanted.pooled && !wanted.in_place && own_branch,
            branch: branch.filter(|_| self.backend.has_branches() && !wanted.pooled),
            base: start.commit,
            onto: start.onto,
            pooled: wanted.pooled,
            fresh: wanted.pooled || wanted.in_place,
            made: wanted.in_place,
            fence: wanted.fence,
            most: rules.most,
            ports: rules.setup.ports.clone(),
            free: setup::free_ports(&rules.setup, seed(&name)),
            name,
            ..Provide::default()
        })
    }

    /// Prepares the base to overlay or copy. Holds the lock on bases, so that gc cannot remove it before the row refers to it.
    fn footing(&self, wanted: &Wanted, commit: &str, step: &mut impl FnMut(&str)) -> Result<OverlayBase, Error> {
        if wanted.in_place || wanted.clone || !self.wants_sharing() {
            return Ok(OverlayBase::default());
        }
        let Ok(found) = self.backend.instant_in(&self.root) else { return Ok(OverlayBase::default()) };
        // Report it when it was tested just now, and to users who ask for overlays.
        let told = found.fresh || self.work.located().workspaces.instant == OverlayMode::Always;
        let why = Some(&found.why).filter(|why| told && !why.is_empty());
        let why = why.map(|why| format!("it is made as {}, because {}", found.name(), why.join("; ")));
        let Some(sharing) = found.sharing else { return Ok(OverlayBase { why, ..OverlayBase::default() }) };
        let turn = Some(self.backend.bases_turn()?);
        step("checking out");
        let base = Some(self.backend.base_for(&self.root, commit, |tree| self.warm(tree))?);
        Ok(match sharing {
            Sharing::Overlay => OverlayBase { turn, overlay_base: base, copy_of: None, why },
            Sharing::Copy => OverlayBase { turn, overlay_base: None, copy_of: base, why },
        })
    }

    /// Whether new workspaces share their files with a base.
    pub(super) fn wants_sharing(&self) -> bool {
        match self.work.located().workspaces.instant {
            OverlayMode::Never => false,
            OverlayMode::Auto => self.backend.worth_sharing(),
            OverlayMode::Always => true,
        }
    }

    /// Copies build artefacts into a base; returns the time of the newest.
    fn warm(&self, tree: &Path) -> std::io::Result<Option<SystemTime>> {
        let mut newest = None;
        for path in &self.work.located().workspaces.warm {
            let (source, target) = (self.source.join(path), tree.join(path));
            let linked = behind_link(&self.source, Path::new(path)) || behind_link(tree, Path::new(path));
            if !linked && fs::symlink_metadata(&source).is_ok() && fs::symlink_metadata(&target).is_err() {
                newest = newest.max(Some(setup::copy(&source, &target).map_err(std::io::Error::other)?));
            }
        }
        Ok(newest)
    }

    /// Creates a directory and records it; after a failure, records that there is none.
    fn make(
        &self,
        actor: &str,
        workspace: &Workspace,
        make: impl FnOnce(&WorkspaceBackend) -> Result<Made, Error>,
    ) -> Result<Given, Error> {
        let made = make(&self.backend).and_then(|made| {
            // Before any agent gets the workspace: from then on it can rewrite its files.
            if Path::new(&workspace.path).parent() == Some(&self.root) {
                self.backend.keeps_workspaces_in(&self.root)?;
            }
            Ok(made)
        });
        match made {
            Ok(made) => {
                let ready = Move::to(&workspace.id, WorkspaceState::Ready);
                let workspace = self.work.perform_as(actor, None, ready)?;
                Ok(Given { workspace, existing: false, notes: made.notes })
            }
            Err(error) => {
                let there = Path::new(&workspace.path).exists();
                let to = if there { WorkspaceState::Quarantined } else { WorkspaceState::Removed };
                if workspace.state == WorkspaceState::Provisioning {
                    let request = Move { reason: Some(error.to_string()), ..Move::to(&workspace.id, to) };
                    self.work.perform_as(actor, None, request)?;
                }
                Err(error)
            }
        }
    }

    /// Creates workspaces in advance until there are `count`; returns how many were created now.
    pub fn pool(&self, actor: &str, count: usize, mut step: impl FnMut(&str)) -> Result<usize, Error> {
        if !self.backend.has_branches() {
            return Err(self.backend.not_for("a pool").into());
        }
        let rows = self.work.perform(List { scope: self.work.scope(), all: false, limit: 0 })?;
        let pooled: Vec<_> =
            rows.iter().filter(|row| row.workspace.pooled && row.workspace.host == self.host()).collect();
        let there = pooled.len();
        for row in pooled.iter().skip(count) {
            self.remove(actor, row.workspace.id.as_str(), None, true, false)?;
        }
        for n in there..count {
            step(&format!("{} of {count}", n + 1));
            let name = Some(format!("pool-{}", random_ids().word()));
            self.provide(actor, Wanted { name, pooled: true, plain: true, ..Wanted::default() }, |_| {})?;
        }
        Ok(count.saturating_sub(there))
    }

    /// Restores a workspace from its last rescue, or from an earlier one; under another name if the workspace itself
    /// still exists.
    pub fn restore(&self, actor: &str, text: &str, at: Option<&str>, name: Option<&str>) -> Result<Given, Error> {
        let workspace = self.work.perform(Show { id: text.to_owned() })?.workspace;
        let begun = matches!(workspace.state, WorkspaceState::Provisioning | WorkspaceState::Quarantined);
        let begun = name.is_none() && begun;
        let mut rescues = self.backend.rescues(&workspace)?;
        let last = rescues.iter().any(|known| Some(&known.commit) == workspace.rescue.as_ref());
        let rescue = match (at, &workspace.rescue) {
            (Some(at), _) => find_rescue(&workspace, rescues, at)?.commit,
            (None, Some(rescue)) if last => rescue.clone(),
            // The rescue of the removal was deleted; use the newest one that is left.
            (None, Some(_)) if !rescues.is_empty() => rescues.pop().map(|rescue| rescue.commit).unwrap_or_default(),
            (None, _) => find_rescue(&workspace, rescues, "")?.commit,
        };
        let workspace = match name {
            Some(name) if file_name(name) != name => {
                return Err(WorkspaceError::BadName { text: name.to_owned() }.into());
            }
            Some(name) => self.beside(actor, &workspace, name)?,
            None => {
                let most = self.work.located().workspaces.most;
                let request = Move { most, ..Move::to(&workspace.id, WorkspaceState::Provisioning) };
                self.work.perform_as(actor, None, request)?
            }
        };
        let _turn = self.backend.turn(&workspace)?;
        self.make(actor, &workspace, |backend| {
            if begun {
                backend.clear_begun(&workspace)?;
            }
            Ok(backend.restore(&workspace, &rescue, name)?)
        })
    }

    /// A row for another workspace like this one.
    fn beside(&self, actor: &str, like: &Workspace, name: &str) -> Result<Workspace, Error> {
        let request = Provide {
            name: name.to_owned(),
            kind: like.kind,
            path: self.root.join(name).display().to_string(),
            source: like.source.clone(),
            own_branch: !self.backend.has_branch(name)?,
            branch: self.backend.has_branches().then(|| name.to_owned()),
            base: like.base.clone(),
            onto: like.onto.clone(),
            fresh: true,
            most: self.work.located().workspaces.most,
            ..Provide::default()
        };
        Ok(self.work.perform_as(actor, None, request)?.workspace)
    }

    /// Adopts a worktree that a user made by hand.
    pub fn adopt(&self, actor: &str, path: &Path) -> Result<Given, Error> {
        let invalid = |problem: &str| -> Error {
            let field = path.display().to_string();
            Refusal::Invalid { field, problem: problem.to_owned() }.into()
        };
        let found = toft_vcs::find(path)?.ok_or_else(|| invalid("is not in a repository"))?;
        let here = self.work.located().checkout.as_ref();
        if here.is_none_or(|here| here.common_dir != found.common_dir) {
            return Err(invalid("belongs to another repository"));
        }
        if found.worktree == MAIN || found.root == found.common_dir {
            return Err(invalid("is the repository's main checkout, which toft does not manage"));
        }
        let start = self.backend.start(None)?;
        let request = Provide {
            name: file_name(&found.worktree),
            path: found.root.display().to_string(),
            source: self.source.display().to_string(),
            branch: self.backend.branch_at(&found.root)?,
            base: start.commit,
            onto: start.onto,
            fresh: true,
            made: true,
            most: self.work.located().workspaces.most,
            ..Provide::default()
        };
        let workspace = self.work.perform_as(actor, None, request)?.workspace;
        Ok(Given { workspace, existing: true, notes: Vec::new() })
    }
}

/// The name of a branch: `length` characters of an id after its prefix, and a title.
fn branch_name(id: &str, length: usize, title: &str) -> String {
    let (prefix, rest) = id.split_once(['-', '_']).unwrap_or((id, ""));
    let short: String = rest.chars().take(length).collect();
    let letters: String =
        title.to_lowercase().chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { ' ' }).collect();
    let mut name = if short.is_empty() { prefix.to_owned() } else { format!("{prefix}-{short}") };
    let start = name.len();
    for word in letters.split_whitespace() {
        if name.len() - start + word.len() > LONGEST_SLUG {
            break;
        }
        name = format!("{name}-{word}");
    }
    name
}

/// A text as a portable directory name.
pub(super) fn file_name(text: &str) -> String {
    let fits = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = text.chars().map(|letter| if fits(letter) { letter } else { '-' }).collect();
    let name = name.trim_matches(['.', '-']).to_owned();
    if name.is_empty() { "work".into() } else { name }
}

/// Where to start searching for ports: depends on the name, so that separate stores rarely collide.
fn seed(name: &str) -> u16 {
    let bytes = *blake3::hash(name.as_bytes()).as_bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
}
