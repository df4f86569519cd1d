//! Locates the store. The first source that names one wins: flag, environment, configuration, repository.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use toft_core::{
    agent::Role,
    id::{IdGenerator, RepositoryId},
    repository::{Place, Repository},
    retention::Retention,
    store::StoreError,
    verbs::{Caller, visit},
};
use toft_store::private;
use toft_vcs::{Checkout, ID_FILE, PLAIN_DIR, Vcs};

use crate::{
    config::{Config, RunRules, Settings, StoreLocation, SyncRules, WorkspaceRules, state_home, variable},
    engine::{Engine, Home, Open},
    error::{Error, io},
    holds::write_private,
    land::{ConfiguredCommands, LandRules},
    machine::Machine,
    person, registry,
    session::random_ids,
    token,
};

/// The file name of a repository's own store.
const STORE: &str = "toft.db";

/// The located store, and why it was chosen.
#[derive(Clone, Debug)]
pub struct Located {
    pub store: Home,
    /// Why this store was chosen.
    pub source: StoreSource,
    /// Whether it may be created if it is missing.
    pub(crate) create: bool,
    /// The store belongs to this worktree only.
    pub(crate) per_worktree: bool,
    pub(crate) brief: bool,
    pub(crate) whole_store: bool,
    /// Ledgers for this process only.
    pub ledgers: Vec<(String, PathBuf)>,
    /// The directory of the caller.
    pub dir: PathBuf,
    /// The checkout of the caller, if any.
    pub checkout: Option<Checkout>,
    /// The repository's id, if it has one yet.
    pub repository: Option<RepositoryId>,
    pub agent: String,
    /// Its role, if the environment determines it; otherwise the registered one.
    pub role: Option<Role>,
    /// Configuration files that were read.
    pub files: Vec<PathBuf>,
    /// Limits that the verbs apply.
    pub policy: toft_core::verbs::Policy,
    /// How long rows are kept.
    pub retention: Retention,
    /// How workspaces are managed.
    pub workspaces: WorkspaceRules,
    /// How agents are run.
    pub run: RunRules,
    /// How ledgers are exchanged.
    pub sync: SyncRules,
    /// Commands that verify work before it is done.
    pub verify: ConfiguredCommands,
    /// How work is landed.
    pub land: LandRules,
}

impl Located {
    /// A marker file: the store knows this clone's repository.
    pub(crate) fn registered_mark(&self) -> Option<PathBuf> {
        let (checkout, id) = self.checkout.as_ref().zip(self.repository.as_ref().filter(|id| id.is_well_formed()))?;
        let path = elsewhere(&checkout.state_dir(), &self.store);
        Some(path.with_extension(id.as_str()))
    }

    /// Fails unless the commands that verify work before it is done are trusted.
    pub fn require_trusted_verification(&self) -> Result<(), Error> {
        let repository = self.repository.as_ref().map(ToString::to_string).unwrap_or_default();
        self.verify.require_trust("verifying work", &repository)
    }

    /// The same for an agent with a name of its own.
    #[must_use]
    pub fn named(self, agent: String) -> Self {
        Self { agent, role: None, ..self }
    }

    /// The owner of the token for the server that has the store.
    pub fn owner(&self) -> Option<String> {
        match &self.store {
            Home::Remote(server) => token::name_on(server),
            Home::File(_) | Home::Server(_) => None,
        }
    }

    /// Whether the store is the repository's own, however it was named.
    pub fn own_store(&self) -> bool {
        let own = self.checkout.as_ref().map(|checkout| checkout.state_dir().join(STORE));
        own.is_some() && self.store.file() == own.as_deref()
    }
}

/// Why a store was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSource {
    /// The caller named it (`--store`).
    Flag,
    /// `TOFT_STORE` named it.
    Environment,
    /// A configuration file named it.
    File(String),
    /// It is the repository's own.
    Repository,
}

impl std::fmt::Display for StoreSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("named by --store"),
            Self::Environment => f.write_str("named by TOFT_STORE"),
            Self::File(path) => write!(f, "named in {path}"),
            Self::Repository => f.write_str("the repository's own, shared by all its worktrees"),
        }
    }
}

/// Finds the store, the checkout and the agent. Opens and creates nothing.
pub fn locate(config: &Config) -> Result<Located, Error> {
    let dir = match &config.dir {
        Some(dir) => dir.clone(),
        None => std::env::current_dir().map_err(io("find", Path::new("the current directory")))?,
    };
    let checkout = toft_vcs::find(&dir)?.map(with_plain_state);
    let state = checkout.as_ref().map(Checkout::state_dir);
    let settings = Settings::load(checkout.as_ref().map(|checkout| checkout.root.as_path()), state.as_deref())?;
    // What an agent writes into the files of its workspace does not decide how its work is verified and landed.
    let landing = match checkout.as_ref().filter(|checkout| checkout.main_root() != checkout.root) {
        Some(linked) => Settings::load(Some(&linked.main_root()), state.as_deref())?,
        None => settings.clone(),
    };
    let (store, source) = if let Some(store) = &config.store {
        (store.clone(), StoreSource::Flag)
    } else if let Some(text) = variable("TOFT_STORE").map(|text| text.trim().to_owned()) {
        (StoreLocation::parse(&text)?, StoreSource::Environment)
    } else if let Some((store, file)) = settings.store {
        (store, StoreSource::File(file))
    } else {
        (StoreLocation::Repo, StoreSource::Repository)
    };
    let home = match home_of(&store, checkout.as_ref(), &dir)? {
        Home::Remote(server) => Home::Remote(server.with_token(config.token.clone())),
        other => other,
    };
    let on_server = match &home {
        Home::Remote(server) => token::name_on(server),
        Home::File(_) | Home::Server(_) => None,
    };
    let per_worktree = store == StoreLocation::Worktree;
    // Who configured a store for every worktree wants one in each new worktree too.
    let wanted = per_worktree && matches!(source, StoreSource::File(_));
    let repository = match &state {
        Some(state) => match read_id_file(&elsewhere(state, &home))? {
            Some(id) => Some(id),
            None => read_id(state)?,
        },
        None => None,
    };
    let mut policy = settings.policy;
    policy.ttl = config.lease_ttl.unwrap_or(policy.ttl);
    policy.verify.clone_from(&landing.verify.commands);
    policy.cap = config.lease_cap.unwrap_or(policy.cap).max(policy.ttl);
    Ok(Located {
        store: home,
        source,
        create: wanted || matches!(store, StoreLocation::NewPath(_)),
        per_worktree,
        brief: config.brief,
        whole_store: config.whole_store,
        ledgers: config.ledgers.clone(),
        dir,
        checkout,
        repository,
        role: person::role(config.agent.is_some(), config.served),
        agent: config.agent.clone().or(settings.agent).or(on_server).unwrap_or_else(user_name),
        files: settings.files,
        policy,
        retention: settings.retention,
        workspaces: settings.workspaces,
        run: settings.run,
        sync: settings.sync,
        verify: landing.verify,
        land: landing.land,
    })
}

/// A directory that was set up without version control and has become a repository keeps its store in `.toft`, if this
/// user registered it. Files that belong to this machine are kept out of version control.
fn with_plain_state(checkout: Checkout) -> Checkout {
    if checkout.vcs == Vcs::None || checkout.state_dir().join(STORE).exists() {
        return checkout;
    }
    let plain = checkout.main_root().join(PLAIN_DIR);
    if !plain.join(ID_FILE).is_file() || !registry::knows(&plain.join(STORE)) {
        return checkout;
    }
    // Where it cannot be written nothing is lost by that.
    let _ = ignore_state(&plain);
    Checkout { state: Some(plain), ..checkout }
}

/// The ignore file of a plain directory's `.toft`: it keeps everything that belongs to this machine out of version
/// control.
const IGNORED: &str = "\
# Written by toft. The plan is yours to commit; the store and its files belong to this machine.
*
!.gitignore
!.gitattributes
!issues.jsonl
!archive/
!archive/*.jsonl
!config.toml
!ledgers.toml
";

fn ignore_state(plain: &Path) -> Result<(), Error> {
    let path = plain.join(".gitignore");
    match fs::symlink_metadata(&path) {
        Ok(_) => Ok(()),
        Err(_) => fs::write(&path, IGNORED).map_err(io("write", &path)),
    }
}

fn home_of(store: &StoreLocation, checkout: Option<&Checkout>, dir: &Path) -> Result<Home, Error> {
    let state = || match checkout {
        Some(checkout) => Ok(checkout.state_dir()),
        None => Err(Error::NoRepository { dir: dir.to_owned() }),
    };
    Ok(Home::File(match store {
        StoreLocation::Repo => state()?.join(STORE),
        StoreLocation::Worktree => {
            state()?;
            checkout.map(worktree_store).unwrap_or_default()
        }
        StoreLocation::Global => state_home().join("toft.db"),
        StoreLocation::Path(path) | StoreLocation::NewPath(path) => dir.join(path),
        StoreLocation::Server(url) => return Ok(Home::Server(url.clone())),
        StoreLocation::Remote(url) => return Ok(Home::Remote(token::address(url)?)),
    }))
}

/// The store of one worktree.
pub(crate) fn worktree_store(checkout: &Checkout) -> PathBuf {
    checkout.state_dir().join("worktrees").join(&checkout.worktree).join(STORE)
}

/// The name of the user who runs this process.
pub fn user_name() -> String {
    variable("USER").or_else(|| variable("LOGNAME")).or_else(account).unwrap_or_else(|| "agent".into())
}

/// The account name of the user who runs this process.
fn account() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::Uid::current()).ok().flatten().map(|user| user.name)
}

fn read_id(state: &Path) -> Result<Option<RepositoryId>, Error> {
    read_id_file(&state.join(ID_FILE))
}

fn read_id_file(path: &Path) -> Result<Option<RepositoryId>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(RepositoryId::known(text.trim()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Io { doing: "read", path: path.to_owned(), cause }),
    }
}

/// Creates the store and the repository's id, once. Running it again changes nothing.
pub(crate) fn init(config: &Config, no_vcs: bool) -> Result<(Located, bool), Error> {
    let ids = &mut random_ids();
    if no_vcs {
        let dir = config.dir.clone().unwrap_or_else(|| PathBuf::from("."));
        mark_plain(&dir, ids)?;
    }
    let located = locate(config)?;
    if located.store.is_postgres() {
        return Err(Error::OpenedByServer { store: located.store.to_string() });
    }
    establish(located, ids)
}

/// Creates the located store, and the repository's id in it, unless they exist.
pub(crate) fn establish(mut located: Located, ids: &mut IdGenerator) -> Result<(Located, bool), Error> {
    let new = match Engine::open(&located.store, Open::Known) {
        Ok(_) | Err(Error::Store(StoreError::Older { .. })) => false,
        Err(Error::NotInitialised { .. }) => true,
        Err(error) => return Err(error),
    };
    let engine = Engine::open(&located.store, Open::Create)?;
    if let Some(checkout) = &located.checkout {
        located.repository = Some(settle_id(&located, checkout, &engine, ids)?);
    }
    if let Some(file) = located.store.file() {
        registry::remember(file)?;
    }
    Ok((located, new))
}

/// The repository's id in this store: the one that the clone has stored, else that of another clone that the store
/// knows, else a new one. The id in a store other than the repository's own is stored for that store only.
fn settle_id(
    located: &Located,
    checkout: &Checkout,
    engine: &Engine,
    ids: &mut IdGenerator,
) -> Result<RepositoryId, Error> {
    let state = checkout.state_dir();
    if located.own_store() {
        return make_id(&state, None, ids);
    }
    let machine = Machine::this();
    let identity =
        toft_vcs::identity(checkout, machine.machine_id()).map_err(toft_vcs::workspace::WorkspaceError::from)?;
    let mut caller = Caller {
        actor: &located.agent,
        place: Place::default(),
        ids,
        processes: &machine,
        policy: &located.policy,
        holds: &[],
        role: located.role,
        token: None,
        op: None,
    };
    let known = engine.perform(&mut caller, visit::List {}, Duration::ZERO)?;
    let known: Vec<Repository> = known.into_iter().map(|(repository, _)| repository).collect();
    let own = read_id(&state)?;
    let registered = |id: &RepositoryId| known.iter().any(|known| known.id == *id);
    if let Some(id) = located.repository.as_ref().or(own.as_ref()).filter(|id| registered(id)) {
        return Ok(id.clone());
    }
    let clone_of = known.iter().find(|known| known.has_clone(&identity.roots, &identity.remotes));
    match (clone_of.map(|known| known.id.clone()), own) {
        (Some(theirs), Some(_)) => {
            let path = elsewhere(&state, &located.store);
            write_private(&path, format!("{theirs}\n").as_bytes())?;
            Ok(theirs)
        }
        (found, None) => make_id(&state, found, ids),
        (None, Some(own)) => Ok(own),
    }
}

/// The file in which a clone stores its repository's id in another store.
fn elsewhere(state: &Path, store: &Home) -> PathBuf {
    let digest = blake3::hash(store.to_string().as_bytes()).to_hex();
    state.join("stores").join(&digest[..16])
}

/// Upgrades a store to the schema of this toft; returns the schema version before and after.
pub fn migrate(located: &Located) -> Result<(i64, i64), Error> {
    Engine::migrate(&located.store)
}

/// Marks a directory as a repository without a VCS, unless it is inside one.
fn mark_plain(dir: &Path, ids: &mut IdGenerator) -> Result<(), Error> {
    let found = toft_vcs::find(dir)?;
    match found {
        Some(checkout) if checkout.vcs != Vcs::None => Err(Error::Config {
            path: "--no-vcs".into(),
            problem: format!(
                "{} is a {} repository; leave the flag out",
                checkout.root.display(),
                checkout.vcs.as_str()
            ),
        }),
        Some(_) => Ok(()),
        None => {
            make_id(&dir.join(PLAIN_DIR), None, ids)?;
            ignore_state(&dir.join(PLAIN_DIR))
        }
    }
}

/// The repository's id: generated, or taken from another clone, if there is none. If two processes generate one at
/// once, the first wins.
fn make_id(state: &Path, known: Option<RepositoryId>, ids: &mut IdGenerator) -> Result<RepositoryId, Error> {
    private::create_dir_all(state).map_err(io("make", state))?;
    let path = state.join(ID_FILE);
    let draft = state.join(format!("{ID_FILE}.{}", ids.word()));
    let id = known.unwrap_or_else(|| RepositoryId::generate(ids));
    let mut file = private::create(&draft).map_err(io("write", &draft))?;
    writeln!(file, "{id}").and_then(|()| file.sync_all()).map_err(io("write", &draft))?;
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft).map_err(io("tidy", &draft))?;
    match linked {
        Ok(()) => Ok(id),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            read_id(state)?.ok_or_else(|| io("read", &path)(error))
        }
        Err(cause) => Err(io("write", &path)(cause)),
    }
}
