//! Other repositories of a store of which this machine has clones.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use toft_core::{
    flow::Task,
    id::RepositoryId,
    refusal::Refusal,
    repository::{MACHINE_PREFIX, Repository, Scope, Worktree},
    verbs::visit,
};

use toft_store::private;
use toft_vcs::ID_FILE;

use crate::{
    clones::directory_name,
    config::{Config, StoreLocation},
    engine::Home,
    error::{Error, io},
    locate::locate,
    registry::registered_stores,
    session::Session,
};

/// One repository that a query over all repositories covers.
pub struct ReachedSession {
    /// The store, opened in a clone of the repository if this machine has one.
    pub session: Session,
    /// The repository in it.
    pub scope: Scope,
    /// Its name; none for a store that no repository uses.
    pub name: Option<String>,
    /// Its ledgers were not already covered through another store.
    pub ledgers: bool,
}

impl Session {
    /// A session with the same configuration in another directory.
    pub fn in_directory(&self, dir: &Path, whole_store: bool) -> Result<Self, Error> {
        let store = match &self.located().store {
            Home::File(path) => StoreLocation::Path(path.clone()),
            Home::Server(url) => StoreLocation::Server(url.clone()),
            Home::Remote(address) => StoreLocation::Remote(address.to_string()),
        };
        let token = match &self.located().store {
            Home::Remote(address) => address.token().map(str::to_owned),
            Home::File(_) | Home::Server(_) => None,
        };
        Self::with(Config {
            store: Some(store),
            token,
            dir: Some(dir.to_owned()),
            agent: Some(self.located().agent.clone()),
            brief: self.located().brief,
            whole_store,
            ..Config::default()
        })
    }

    /// A clone of a repository on this machine, with this store. The paths in the store may belong to another machine
    /// or be outdated: a directory counts only if it says itself that it is this repository.
    pub fn in_clone_of(&self, repository: &Repository, worktrees: &[Worktree]) -> Option<Self> {
        let here = format!("{MACHINE_PREFIX}{}", self.machine().machine_id());
        let own = repository.remotes.iter().filter_map(|remote| remote.strip_prefix(&here)).map(PathBuf::from);
        let main = worktrees.iter().filter(|worktree| worktree.name == Worktree::MAIN);
        let common = Path::new(&repository.common_dir);
        let beside = common.parent().filter(|_| common.file_name().is_some_and(|name| name == ".git"));
        let dirs = main.map(|worktree| PathBuf::from(&worktree.path)).chain(own);
        let dirs = dirs.chain(beside.map(Path::to_owned)).chain([common.to_owned()]);
        dirs.filter(|dir| dir.is_dir()).find_map(|dir| {
            let is_it = |session: &Self| session.located().repository.as_ref() == Some(&repository.id);
            self.in_directory(&dir, false).ok().filter(is_it)
        })
    }

    /// The repository in which a task is to be worked on: none if it is this one, otherwise a clone of it on this
    /// machine.
    pub fn in_repository_of(&self, task: &Task) -> Result<Option<Self>, Error> {
        let Some(id) = task.repository().filter(|id| self.located().repository.as_ref() != Some(*id)) else {
            return Ok(None);
        };
        let (repository, worktrees) = self.repository(id)?;
        match self.in_clone_of(&repository, &worktrees) {
            Some(session) => Ok(Some(session)),
            None => {
                let remote = repository.remotes.iter().find(|remote| !remote.starts_with(MACHINE_PREFIX)).cloned();
                Err(Error::NoCloneHere { name: repository.name, remote })
            }
        }
    }

    /// A repository of this store, with its worktrees.
    pub fn repository(&self, id: &RepositoryId) -> Result<(Repository, Vec<Worktree>), Error> {
        let unknown = || Refusal::NotFound { what: "repository".into(), text: id.to_string() };
        let known = self.perform(visit::List {})?.into_iter().find(|(repository, _)| repository.id == *id);
        Ok(known.ok_or_else(unknown)?)
    }

    /// Every repository of this store.
    fn every_repository(&self, seen: &mut BTreeSet<PathBuf>) -> Result<Vec<ReachedSession>, Error> {
        let mut all = Vec::new();
        for (repository, worktrees) in self.perform(visit::List {})? {
            let scope = Scope { repository: Some(repository.id.clone()), worktree: None };
            let (session, ledgers) = match self.in_clone_of(&repository, &worktrees) {
                Some(session) => {
                    let common = session.located().checkout.as_ref().map(|checkout| checkout.common_dir.clone());
                    let new = common.is_some_and(|common| seen.insert(common));
                    (session, new)
                }
                None => (self.in_directory(Path::new("/"), true)?, false),
            };
            all.push(ReachedSession { session, scope, name: Some(repository.name), ledgers });
        }
        if all.is_empty() {
            let session = self.in_directory(Path::new("/"), true)?;
            all.push(ReachedSession { session, scope: Scope::default(), name: None, ledgers: false });
        }
        Ok(all)
    }
}

/// Every repository of the server of `config`, for a machine that has no clones: each in a directory below `plans` that has
/// its plan and nothing else.
pub fn repositories_of_server(config: &Config, plans: &Path) -> Result<Vec<ReachedSession>, Error> {
    let config = Config { dir: Some(PathBuf::from("/")), whole_store: true, ..config.clone() };
    let server = Session::with(config)?;
    let mut all = Vec::new();
    let mut repositories = server.perform(visit::List {})?;
    // Of two of the same name, the older keeps it.
    repositories.sort_by_key(|(repository, _)| repository.created);
    for (repository, _) in repositories {
        let planned = plan_only(&repository, plans).and_then(|dir| server.in_directory(&dir, false));
        let (session, ledgers) = match planned {
            Ok(session) => (session, true),
            // What agents do is seen without it.
            Err(error) => {
                let session = server.in_directory(Path::new("/"), true)?;
                session.note(format!("the plan of {} is not shown: {error}", repository.name));
                (session, false)
            }
        };
        let scope = Scope { repository: Some(repository.id), worktree: None };
        all.push(ReachedSession { session, scope, name: Some(repository.name), ledgers });
    }
    if all.is_empty() {
        all.push(ReachedSession { session: server, scope: Scope::default(), name: None, ledgers: false });
    }
    Ok(all)
}

/// A directory for the plan of a repository.
fn plan_only(repository: &Repository, plans: &Path) -> Result<PathBuf, Error> {
    if !repository.id.is_well_formed() {
        let what = "repository".into();
        return Err(Refusal::NotFound { what, text: repository.id.to_string() }.into());
    }
    let dir = plans.join(directory_name(repository));
    let state = dir.join(".git").join("toft");
    let id = state.join(ID_FILE);
    if !id.exists() {
        private::create_dir_all(&dir).map_err(io("make", &dir))?;
        toft_vcs::clone::make_empty(&dir)?;
        private::create_dir_all(&state).map_err(io("make", &state))?;
        private::write(&id, repository.id.as_str().as_bytes()).map_err(io("write", &id))?;
    }
    Ok(dir)
}

/// Every repository of every store of this user, and of the store of `config`; each once. A store that cannot be read
/// is one entry of the second list.
pub fn every_repository(config: &Config) -> Result<(Vec<ReachedSession>, Vec<String>), Error> {
    let mut stores: Vec<StoreLocation> = registered_stores()?.into_iter().map(StoreLocation::Path).collect();
    if let Ok(here) = locate(config) {
        match here.store {
            Home::Server(url) => stores.push(StoreLocation::Server(url)),
            Home::Remote(address) => stores.push(StoreLocation::Remote(address.to_string())),
            Home::File(path) => {
                let path = std::fs::canonicalize(&path).unwrap_or(path);
                if path.exists() && !stores.contains(&StoreLocation::Path(path.clone())) {
                    stores.push(StoreLocation::Path(path));
                }
            }
        }
    }
    // A repository's own store comes first: its ledgers are reached through that.
    let own = |store: &StoreLocation| !matches!(store, StoreLocation::Path(path) if path.ends_with("toft/toft.db"));
    stores.sort_by_key(own);
    let (mut all, mut bad, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for store in stores {
        let config = Config { store: Some(store), dir: Some(PathBuf::from("/")), whole_store: true, ..config.clone() };
        let reached = Session::with(config.clone()).and_then(|session| session.every_repository(&mut seen));
        match (reached, config.store) {
            (Ok(reached), _) => all.extend(reached),
            (Err(error), Some(StoreLocation::Path(path))) => {
                bad.push(format!("{} is left out: {error}", path.display()));
            }
            (Err(error), _) => bad.push(format!("a store is left out: {error}")),
        }
    }
    Ok((all, bad))
}
