//! Workspaces: a row in the store and a directory on disk, kept together.
//!
//! The row comes first and says how far things are; the directory follows, under a turn of its own, so that whoever
//! comes after a crash can go on. Start at [`Toft::workspaces`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use toft_core::{
    flow::{Task, TaskStatus},
    lease::{Fence, Processes},
    store,
    time::Timestamp,
    verbs::{
        claim::Claimed,
        finish::{self, How},
        workspace::{List, Listed, Move, Name, Named, Pin, Provide, Show},
    },
    workspace::{Fate, Survey, Workspace, WorkspaceKind, WorkspaceState},
};
use toft_vcs::{
    MAIN,
    workspace::{Ground, Made, Removed, WorkspaceError},
};

use crate::{
    config::Instant,
    error::{Error, io},
    machine,
    session::{Toft, random_mint},
    setup::{self, Setup},
};

/// What is wanted of a new workspace.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What is done in it: a task or an issue, by id.
    pub work: Option<String>,
    /// Another name than the work's.
    pub name: Option<String>,
    /// Another commit to start from than the main checkout's.
    pub base: Option<String>,
    /// A repository of its own.
    pub clone: bool,
    /// As it is checked out, without being set up.
    pub plain: bool,
    /// For whoever needs one next.
    pub pooled: bool,
    /// The hold it is asked for under; my own when absent.
    pub fence: Option<Fence>,
}

/// A workspace, ready to be worked in.
#[derive(Clone, Debug, Serialize)]
pub struct Given {
    /// The workspace.
    #[serde(flatten)]
    pub workspace: Workspace,
    /// It was there already.
    pub existing: bool,
    /// What is not in it as one might expect.
    pub notes: Vec<String>,
}

/// A workspace, and what was seen in it.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// The workspace.
    #[serde(flatten)]
    pub listed: Listed,
    /// What is in it; nothing if it is gone, or on another machine.
    pub survey: Option<Survey>,
    /// Why it could not be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Two workspaces that change the same file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Collision {
    /// The workspaces, by name.
    pub workspaces: Vec<String>,
    /// The files.
    pub paths: Vec<String>,
}

/// What tidying up did, or would do, with one workspace.
#[derive(Clone, Debug, Serialize)]
pub struct Tidied {
    /// Its name.
    pub name: String,
    /// It is gone, or would go.
    pub gone: bool,
    /// Why, or why not.
    pub why: String,
    /// The commit that holds what was only in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
}

/// The workspaces of one repository on this machine.
pub struct Workspaces<'t> {
    toft: &'t Toft,
    ground: Ground,
    source: PathBuf,
    root: PathBuf,
    state: PathBuf,
    id: String,
}

impl Toft {
    /// The workspaces of this repository on this machine.
    pub fn workspaces(&self) -> Result<Workspaces<'_>, Error> {
        let located = self.located();
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        let (checkout, id) = located.checkout.as_ref().zip(located.repository.as_ref()).ok_or_else(nowhere)?;
        // Two repositories may have one name.
        let word: String = id.as_str().trim_start_matches("rp_").chars().take(4).collect();
        let root = located.workspaces.root.join(format!("{}-{word}", file_name(&checkout.name())));
        Ok(Workspaces {
            toft: self,
            ground: Ground::of(checkout),
            source: checkout.root.clone(),
            root,
            state: checkout.state_dir(),
            id: id.to_string(),
        })
    }
}

impl Toft {
    /// A workspace for what `actor` claimed. Without one there is no claim: it is given back.
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
        self.workspaces().and_then(|all| all.provide(actor, wanted, step)).or_else(|error| {
            let (id, message) = (Some(claimed.task.id.to_string()), format!("no workspace: {error}"));
            let request = finish::Request { id, fence, how: How::Release, message, cost: None };
            self.finish(actor, None, request)?;
            Err(Error::NoWorkspace { why: error.to_string() })
        })
    }

    /// The workspace that this was opened in, with its task and who holds that.
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

    /// The commit that the workspace this was opened in is on.
    pub fn commit_here(&self) -> Result<Option<String>, Error> {
        match self.workspace_here()? {
            Some(found) => Ok(self.workspaces()?.ground.head_at(Path::new(&found.workspace.path))?),
            None => Ok(None),
        }
    }

    /// When a task ends, its workspace goes if configuration says so and nobody is in it.
    pub(crate) fn let_go_of_workspace(&self, actor: &str, task: &Task) -> Result<Option<Tidied>, Error> {
        let succeeded = task.state.status == TaskStatus::Done;
        let over = !task.state.status.open();
        let Some(rescue) = self.located().workspaces.keep.lets_go(succeeded).filter(|_| over) else { return Ok(None) };
        let all = self.workspaces()?;
        let id = task.id.as_str();
        let found = match self.perform(Show { id: id.to_owned() }) {
            Ok(found) if found.workspace.state == WorkspaceState::Ready => found.workspace,
            Ok(_) | Err(Error::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        match all.remove(actor, id, None, rescue) {
            Ok(tidied) => Ok(Some(tidied)),
            Err(Error::Store(error)) => Err(error.into()),
            Err(error) => Ok(Some(Tidied { name: found.name, gone: false, why: error.to_string(), rescue: None })),
        }
    }
}

/// A word that can be a directory anywhere.
fn file_name(text: &str) -> String {
    let fits = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let name: String = text.chars().map(|letter| if fits(letter) { letter } else { '-' }).collect();
    let name = name.trim_matches(['.', '-']).to_owned();
    if name.is_empty() { "work".into() } else { name }
}

impl Workspaces<'_> {
    /// Where this repository's are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Gives a workspace: the one that is there for this work, or a new one. Nothing is left if that fails.
    /// `step` is told what goes on while it is set up.
    pub fn provide(&self, actor: &str, wanted: Wanted, mut step: impl FnMut(&str)) -> Result<Given, Error> {
        let named = match &wanted.work {
            Some(work) => self.toft.perform_as(actor, None, Name { id: work.clone() })?,
            None => Named { name: String::new(), task: None, commit: None },
        };
        let name = file_name(&wanted.name.unwrap_or(named.name));
        let rules = &self.toft.located().workspaces;
        let setup = if wanted.plain { &Setup::default() } else { &rules.setup };
        if !setup.trusted(&self.id) {
            return Err(Error::Untrusted { count: setup.commands().len() });
        }
        let mut start = self.ground.start(wanted.base.as_deref())?;
        if let (None, Some(commit)) = (&wanted.base, &named.commit)
            && let Ok(last) = self.ground.start(Some(commit))
        {
            // Where the last holder got to, as far as this machine has it.
            start.commit = last.commit;
        }
        // Until the row says who stands on it, nobody may take a base away.
        let bases = self.share(wanted.clone).then(|| self.ground.bases_turn()).transpose()?;
        let stands_on = match bases {
            Some(_) => {
                step("checking out");
                Some(self.ground.base_for(&self.root, &start.commit, |tree| self.warm(tree))?)
            }
            None => None,
        };
        let commit = start.commit.clone();
        let request = Provide {
            stands_on,
            kind: if wanted.clone { WorkspaceKind::Clone } else { WorkspaceKind::Worktree },
            path: self.root.join(&name).display().to_string(),
            source: self.source.display().to_string(),
            branch: (self.ground.has_branches() && !wanted.pooled).then(|| name.clone()),
            base: start.commit,
            onto: start.onto,
            pooled: wanted.pooled,
            fresh: wanted.pooled,
            made: false,
            task: named.task.map(|task| task.to_string()),
            fence: wanted.fence,
            most: rules.most,
            ports: rules.setup.ports.clone(),
            free: rules.setup.free_ports(seed(&name)),
            name,
        };
        let provided = self.toft.perform_as(actor, None, request)?;
        drop(bases);
        let mut workspace = provided.workspace;
        let _turn = self.ground.turn(&workspace)?;
        if workspace.state == WorkspaceState::Ready {
            self.ground.open(&workspace)?;
        }
        if workspace.state == WorkspaceState::Ready && Path::new(&workspace.path).is_dir() {
            return Ok(Given { workspace, existing: true, notes: Vec::new() });
        }
        if provided.begun {
            workspace.base = commit;
        }
        self.make(actor, &workspace, |ground| {
            step("checking out");
            let made = match provided.ahead.then(|| ground.take_over(&workspace)) {
                Some(Ok(made)) => made,
                _ => {
                    if provided.begun {
                        // Whoever made it before did not come to the end, or somebody was at it since.
                        ground.clear_begun(&workspace)?;
                    }
                    ground.provide(&workspace)?
                }
            };
            setup.run(&self.source, &workspace, &self.log(&workspace), step).or_else(|error| {
                // It never was handed over; its log says why.
                ground.clear_begun(&workspace)?;
                Err(error)
            })?;
            Ok(made)
        })
    }

    /// Whether a new workspace shares its files with others.
    fn share(&self, clone: bool) -> bool {
        match self.toft.located().workspaces.instant {
            _ if clone => false,
            Instant::Never => false,
            Instant::Auto => self.ground.worth_sharing() && self.ground.instant_in(&self.root).is_ok(),
            Instant::Always => self.ground.instant_in(&self.root).is_ok(),
        }
    }

    /// Whether workspaces share their files here, or why not.
    pub fn instant(&self) -> Result<(), String> {
        self.ground.instant_in(&self.root)
    }

    /// Copies build artefacts to where everybody shares them.
    fn warm(&self, tree: &Path) -> std::io::Result<()> {
        for path in &self.toft.located().workspaces.warm {
            let (source, target) = (self.source.join(path), tree.join(path));
            if fs::symlink_metadata(&source).is_ok() && fs::symlink_metadata(&target).is_err() {
                setup::copy(&source, &target).map_err(std::io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Where what was said while a workspace was set up is.
    pub fn log(&self, workspace: &Workspace) -> PathBuf {
        self.state.join("workspaces").join(workspace.id.as_str()).join("setup.log")
    }

    /// Makes a directory and says so; if that fails, says that there is none.
    fn make(
        &self,
        actor: &str,
        workspace: &Workspace,
        make: impl FnOnce(&Ground) -> Result<Made, Error>,
    ) -> Result<Given, Error> {
        match make(&self.ground) {
            Ok(made) => {
                let ready = Move::to(&workspace.id, WorkspaceState::Ready);
                let workspace = self.toft.perform_as(actor, None, ready)?;
                Ok(Given { workspace, existing: false, notes: made.notes })
            }
            Err(error) => {
                let there = Path::new(&workspace.path).exists();
                let to = if there { WorkspaceState::Quarantined } else { WorkspaceState::Removed };
                if workspace.state == WorkspaceState::Provisioning {
                    let request = Move { reason: Some(error.to_string()), ..Move::to(&workspace.id, to) };
                    self.toft.perform_as(actor, None, request)?;
                }
                Err(error)
            }
        }
    }

    /// Takes a worktree in that somebody made by hand.
    pub fn adopt(&self, actor: &str, path: &Path) -> Result<Given, Error> {
        let invalid = |problem: &str| -> Error {
            let field = path.display().to_string();
            toft_core::refusal::Refusal::Invalid { field, problem: problem.to_owned() }.into()
        };
        let found = toft_vcs::find(path)?.ok_or_else(|| invalid("is not in a repository"))?;
        let here = self.toft.located().checkout.as_ref();
        if here.is_none_or(|here| here.common_dir != found.common_dir) {
            return Err(invalid("belongs to another repository"));
        }
        if found.worktree == MAIN || found.root == found.common_dir {
            return Err(invalid("is the repository's main checkout, which stays the user's own"));
        }
        let start = self.ground.start(None)?;
        let request = Provide {
            name: file_name(&found.worktree),
            kind: WorkspaceKind::Worktree,
            path: found.root.display().to_string(),
            source: self.source.display().to_string(),
            branch: self.ground.branch_at(&found.root)?,
            base: start.commit,
            onto: start.onto,
            stands_on: None,
            pooled: false,
            fresh: true,
            made: true,
            task: None,
            fence: None,
            most: self.toft.located().workspaces.most,
            ports: Vec::new(),
            free: Vec::new(),
        };
        let workspace = self.toft.perform_as(actor, None, request)?.workspace;
        Ok(Given { workspace, existing: true, notes: Vec::new() })
    }

    fn host(&self) -> &str {
        self.toft.machine().host()
    }

    fn now(&self) -> Result<Timestamp, Error> {
        Ok(store::ask(self.toft.store(), |tx| tx.now())?.wall)
    }

    /// The workspaces, newest first, and what is in each.
    pub fn list(&self, all: bool, limit: usize) -> Result<Vec<Seen>, Error> {
        let rows = self.toft.perform(List { scope: self.toft.scope(), all, limit })?;
        Ok(rows.into_iter().map(|listed| self.look(listed)).collect())
    }

    /// One workspace, and what is in it.
    pub fn show(&self, text: &str) -> Result<Seen, Error> {
        Ok(self.look(self.toft.perform(Show { id: text.to_owned() })?))
    }

    /// One workspace, there to be entered.
    pub fn open(&self, text: &str) -> Result<Workspace, Error> {
        let workspace = self.toft.perform(Show { id: text.to_owned() })?.workspace;
        if workspace.state.live() && workspace.host == self.host() {
            self.ground.open(&workspace)?;
        }
        Ok(workspace)
    }

    fn look(&self, listed: Listed) -> Seen {
        let workspace = &listed.workspace;
        let there = workspace.state.live() && workspace.host == self.host();
        let (survey, trouble) = match there.then(|| self.ground.survey(workspace)) {
            Some(Ok(survey)) => (Some(survey), None),
            Some(Err(error)) if Path::new(&workspace.path).is_dir() => (None, Some(error.to_string())),
            Some(Err(_)) => (None, Some("its directory is not there".into())),
            None => (None, None),
        };
        Seen { listed, survey, trouble }
    }

    /// Live workspaces that change the same files.
    pub fn collisions(&self) -> Result<Vec<Collision>, Error> {
        let rows = self.toft.perform(List { scope: self.toft.scope(), all: false, limit: 0 })?;
        let mut by_path: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for Listed { workspace, paths, .. } in rows.into_iter().filter(|row| !row.workspace.pooled) {
            let here = workspace.host == self.host() && Path::new(&workspace.path).is_dir();
            let touched = if here { self.ground.touched(&workspace)? } else { Vec::new() };
            for path in touched.into_iter().chain(paths) {
                by_path.entry(path).or_default().insert(workspace.name.clone());
            }
        }
        let mut together: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
        for (path, names) in by_path.into_iter().filter(|(_, names)| names.len() > 1) {
            together.entry(names.into_iter().collect()).or_default().push(path);
        }
        Ok(together.into_iter().map(|(workspaces, paths)| Collision { workspaces, paths }).collect())
    }

    /// Keeps a workspace for good, or no longer.
    pub fn pin(&self, actor: &str, text: &str, pinned: bool) -> Result<Workspace, Error> {
        self.toft.perform_as(actor, None, Pin { id: text.to_owned(), pinned })
    }

    /// Puts everything in a workspace away, and leaves it as it is.
    pub fn rescue(&self, text: &str) -> Result<(Workspace, String), Error> {
        let workspace = self.toft.perform(Show { id: text.to_owned() })?.workspace;
        let _turn = self.ground.turn(&workspace)?;
        let commit = self.ground.rescue(&workspace)?;
        Ok((workspace, commit))
    }

    /// Takes a workspace down. What is only in it is put away first, if that is wanted; else it stays.
    pub fn remove(&self, actor: &str, text: &str, fence: Option<Fence>, rescue: bool) -> Result<Tidied, Error> {
        let workspace = self.toft.perform(Show { id: text.to_owned() })?.workspace;
        let path = Path::new(&workspace.path);
        if let Some(pid) = machine::process_in(path) {
            return Err(Error::InUse { pid, path: path.to_owned() });
        }
        let removing = Move { fence, ..Move::to(&workspace.id, WorkspaceState::Removing) };
        let workspace = self.toft.perform_as(actor, None, removing)?;
        self.take_down(actor, &workspace, rescue)
    }

    fn take_down(&self, actor: &str, workspace: &Workspace, rescue: bool) -> Result<Tidied, Error> {
        let _turn = self.ground.turn(workspace)?;
        match self.ground.remove(workspace, rescue) {
            Ok(Removed { rescue, survey, .. }) => {
                let request = Move { rescue, ..Move::to(&workspace.id, WorkspaceState::Removed) };
                let workspace = self.toft.perform_as(actor, None, request)?;
                let why = survey.map_or_else(|| "gone".into(), |survey| survey.summary());
                Ok(Tidied { name: workspace.name, gone: true, why, rescue: workspace.rescue })
            }
            Err(error) => {
                if Path::new(&workspace.path).exists() {
                    let back =
                        Move { reason: Some(error.to_string()), ..Move::to(&workspace.id, WorkspaceState::Ready) };
                    self.toft.perform_as(actor, None, back)?;
                }
                Err(error.into())
            }
        }
    }

    /// Brings a workspace back as it was when it was put away, or at an earlier rescue; under another name if the
    /// workspace itself is still there.
    pub fn restore(&self, actor: &str, text: &str, at: Option<&str>, name: Option<&str>) -> Result<Given, Error> {
        let workspace = self.toft.perform(Show { id: text.to_owned() })?.workspace;
        let none = || WorkspaceError::NoBase { text: format!("a rescue of {}", workspace.name) };
        let rescue = match at {
            Some(at) => self.ground.rescue_named(&workspace, at)?.ok_or_else(none)?,
            None => workspace.rescue.clone().ok_or_else(none)?,
        };
        let workspace = match name {
            Some(name) => self.beside(actor, &workspace, &file_name(name))?,
            None => {
                let request = Move::to(&workspace.id, WorkspaceState::Provisioning);
                self.toft.perform_as(actor, None, request)?
            }
        };
        let _turn = self.ground.turn(&workspace)?;
        self.make(actor, &workspace, |ground| Ok(ground.restore(&workspace, &rescue)?))
    }

    /// A row for another workspace like this one.
    fn beside(&self, actor: &str, like: &Workspace, name: &str) -> Result<Workspace, Error> {
        let request = Provide {
            name: name.to_owned(),
            kind: like.kind,
            path: self.root.join(name).display().to_string(),
            source: like.source.clone(),
            branch: like.branch.clone(),
            base: like.base.clone(),
            onto: like.onto.clone(),
            stands_on: None,
            pooled: false,
            fresh: true,
            made: false,
            task: None,
            fence: None,
            most: self.toft.located().workspaces.most,
            ports: Vec::new(),
            free: Vec::new(),
        };
        Ok(self.toft.perform_as(actor, None, request)?.workspace)
    }

    /// Sees to it that `count` workspaces are made ahead; gives how many were made now.
    pub fn pool(&self, actor: &str, count: usize, mut step: impl FnMut(&str)) -> Result<usize, Error> {
        let rows = self.toft.perform(List { scope: self.toft.scope(), all: false, limit: 0 })?;
        let there = rows.iter().filter(|row| row.workspace.pooled && row.workspace.host == self.host()).count();
        for n in there..count {
            step(&format!("{} of {count}", n + 1));
            let name = Some(format!("pool-{}", random_mint().word()));
            self.provide(actor, Wanted { name, pooled: true, plain: true, ..Wanted::default() }, |_| {})?;
        }
        Ok(count.saturating_sub(there))
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
        let now = self.now()?;
        let rules = &self.toft.located().workspaces;
        let max_age = max_age.or(rules.max_age);
        let rows = self.toft.perform(List { scope: self.toft.scope(), all: false, limit: 0 })?;
        let mut bytes: u64 = match rules.max_bytes {
            Some(_) => rows.iter().map(|row| own_size(&row.workspace)).sum(),
            None => 0,
        };
        let mut tidied = Vec::new();
        for listed in rows.iter().rev() {
            let workspace = &listed.workspace;
            progress(&workspace.name);
            let stays = |why: String| Tidied { name: workspace.name.clone(), gone: false, why, rescue: None };
            let begun = matches!(workspace.state, WorkspaceState::Removing | WorkspaceState::Provisioning);
            if begun && workspace.host == self.host() {
                tidied.push(match self.go_on(actor, workspace, try_only) {
                    Err(Error::Store(error)) => return Err(error.into()),
                    done => done.unwrap_or_else(|error| stays(error.to_string())),
                });
                continue;
            }
            if let Err(why) = listed.idle(self.host(), now, max_age) {
                tidied.push(stays(why));
                continue;
            }
            let too_old = max_age.is_some_and(|age| now.since(workspace.used) >= age);
            let too_large = |bytes: u64| rules.max_bytes.is_some_and(|most| bytes > most);
            let fate = match self.ground.survey(workspace) {
                Ok(survey) => (survey.fate(), survey.summary()),
                Err(error) => (Fate::Stay(error.to_string()), String::new()),
            };
            let (rescue, why) = match fate {
                (Fate::Go, why) => (false, why),
                (Fate::Rescue, why) if too_old || too_large(bytes) => (true, why),
                (Fate::Rescue, why) | (Fate::Stay(why), _) => {
                    tidied.push(stays(why));
                    continue;
                }
            };
            if try_only {
                tidied.push(Tidied { gone: true, ..stays(why) });
                continue;
            }
            if rescue && !too_old {
                // What can be built again goes first; that may be enough.
                let before = own_size(workspace);
                self.ground.shed(workspace)?;
                bytes = bytes.saturating_sub(before.saturating_sub(own_size(workspace)));
                if !too_large(bytes) {
                    tidied.push(stays(format!("{why}; its artefacts are gone")));
                    continue;
                }
            }
            let freed = rules.max_bytes.map(|_| own_size(workspace)).unwrap_or_default();
            tidied.push(match self.remove(actor, workspace.id.as_str(), None, rescue) {
                Ok(done) => {
                    bytes = bytes.saturating_sub(freed);
                    done
                }
                Err(Error::Store(error)) => return Err(error.into()),
                Err(error) => stays(error.to_string()),
            });
        }
        if !try_only {
            self.tidy_bases()?;
        }
        Ok(tidied)
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
        let begun = Tidied { name: workspace.name.clone(), gone: true, why: "begun before".into(), rescue: None };
        if try_only {
            return Ok(begun);
        }
        match workspace.state {
            WorkspaceState::Removing => self.take_down(actor, workspace, true),
            _ => {
                let Some(_turn) = self.ground.free_turn(workspace)? else {
                    return Ok(Tidied { gone: false, why: "somebody is making it".into(), ..begun });
                };
                let Removed { rescue, .. } = self.ground.clear_begun(workspace)?;
                let why = "it was never handed over".to_owned();
                let (id, reason) = (&workspace.id, Some(why.clone()));
                let request = Move { reason, rescue, ..Move::to(id, WorkspaceState::Removed) };
                let workspace = self.toft.perform_as(actor, None, request)?;
                Ok(Tidied { why, rescue: workspace.rescue, ..begun })
            }
        }
    }

    /// Directories among the workspaces that no row knows; they are nobody's to touch.
    pub fn unknown(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(io("read", &self.root)(cause)),
        };
        let rows = self.toft.perform(List { scope: self.toft.scope(), all: false, limit: 0 })?;
        let mut known: BTreeSet<PathBuf> = BTreeSet::new();
        for Listed { workspace, .. } in &rows {
            known.insert(PathBuf::from(&workspace.path));
            known.extend(Ground::on_its_way(workspace));
        }
        let mut unknown = Vec::new();
        for entry in entries {
            let path = entry.map_err(io("read", &self.root))?.path();
            let beside = path.file_name().is_some_and(|name| Ground::beside(&name.to_string_lossy()));
            if !known.contains(&path) && !beside {
                unknown.push(path);
            }
        }
        unknown.sort();
        Ok(unknown)
    }
}

/// Where to begin looking for ports: spread by name, so that stores that do not know each other seldom meet.
fn seed(name: &str) -> u16 {
    let bytes = *blake3::hash(name.as_bytes()).as_bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
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
