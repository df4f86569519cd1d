//! A session: an open store, the caller and its location.

use std::{
    path::PathBuf,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use toft_core::{
    checkpoint::Detail,
    flow::{Source as FlowSource, WorkflowPlan as FlowPlan},
    id::{IdGenerator, RepositoryId},
    refusal::Refusal,
    repository::{Place, Repository, Scope, Worktree},
    store::{Access, Fault, Store, StoreError},
    time::Timestamp,
    token::TokenRole,
    verbs::{AnyRun, Caller, Operation, Verb, VerbRun, facts, flow, issue::Note, visit},
    wire::SentToken,
};
use toft_vcs::{AGAIN, Checkout, MAIN};

use crate::{
    config::{Config, variable},
    engine::{Engine, Home, Open},
    error::Error,
    events::Events,
    holds::write_private,
    locate::{Located, establish, init, locate, worktree_store},
    machine::Machine,
    person::MARK,
};

/// How often a waiting process checks for changes: soon at first, then less and less often.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// An open store, the caller and its location. Cheap to share between threads; one transaction at a time.
pub struct Session {
    engine: Engine,
    located: Located,
    machine: Machine,
    ids: Mutex<IdGenerator>,
    visited: AtomicBool,
    registered: AtomicBool,
    notes: Mutex<Vec<String>>,
    /// In a workspace: the checkout whose ledger is used.
    ledger_home: OnceLock<Option<Checkout>>,
    /// The token for the server allows to change plans.
    may_change_plans: OnceLock<()>,
}

impl Session {
    /// Opens the store that the command line would use in `dir`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with(Config { dir: Some(dir.into()), ..Config::default() })
    }

    /// Opens the store that `config` describes.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    pub fn with(config: Config) -> Result<Self, Error> {
        Self::at(locate(&config)?)
    }

    /// Opens a located store. A repository that the store does not know is refused: `init` registers it.
    pub fn at(located: Located) -> Result<Self, Error> {
        if located.store.is_postgres() {
            return Err(Error::OpenedByServer { store: located.store.to_string() });
        }
        Self::looked_after(located)
    }

    /// Opens a located store to look after it, which may be on PostgreSQL, too.
    pub fn looked_after(located: Located) -> Result<Self, Error> {
        if located.store.is_postgres() {
            // Who looks after it may stand in any repository.
            return Self::opened(located);
        }
        if located.per_worktree && located.create && located.store.missing() {
            return Self::established(located);
        }
        let mut session = Self::opened(located)?;
        if let Some(name) = session.new_name_of_worktree()? {
            session = session.renamed(name)?;
        }
        let located = &session.located;
        if let Some(checkout) = &located.checkout
            && !(located.own_store() || located.create || located.whole_store || session.is_registered()?)
        {
            return Err(Error::UnknownRepository { name: checkout.name(), store: located.store.to_string() });
        }
        Ok(session)
    }

    /// Whether the store knows this repository. A store never removes one, so the clone caches the answer.
    fn is_registered(&self) -> Result<bool, Error> {
        let Some(id) = &self.located.repository else { return Ok(false) };
        let remembered = self.located.registered_mark();
        if remembered.as_ref().is_some_and(|path| path.exists()) {
            return Ok(true);
        }
        let known = self.knows(id)?;
        if let Some(path) = remembered.filter(|_| known) {
            // Where it cannot be remembered it is asked again.
            let _ = write_private(&path, b"");
        }
        Ok(known)
    }

    /// Refuses if the token for the server does not allow to change plans. A server that is away is no reason: what is written
    /// is sent when it is back.
    pub fn check_may_change_plans(&self) -> Result<(), Error> {
        let Engine::Remote(remote) = &self.engine else { return Ok(()) };
        if self.may_change_plans.get().is_some() {
            return Ok(());
        }
        match remote.own_token() {
            Ok(SentToken { name, role, .. }) if !role.may(Note::NAME) => {
                let why = "it does not change plans".to_owned();
                Err(Refusal::TokenDenied { name, role, why }.into())
            }
            Ok(_) => {
                let _ = self.may_change_plans.set(());
                Ok(())
            }
            Err(StoreError::Unreachable { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The role of the token for the server; nothing without a server.
    pub fn token_role(&self) -> Result<Option<TokenRole>, Error> {
        let Engine::Remote(remote) = &self.engine else { return Ok(None) };
        Ok(Some(remote.own_token()?.role))
    }

    fn knows(&self, id: &RepositoryId) -> Result<bool, Error> {
        let known = self.run(&self.located.agent, None, visit::List {})?;
        Ok(known.iter().any(|(known, _)| known.id == *id))
    }

    fn worktrees(&self, repository: &RepositoryId) -> Result<Vec<Worktree>, Error> {
        self.run(&self.located.agent, None, facts::Worktrees { repository: repository.clone() })
    }

    fn opened(located: Located) -> Result<Self, Error> {
        let how = match (located.create, located.brief) {
            (true, _) => Open::Create,
            (false, true) => Open::Briefly,
            (false, false) => Open::Known,
        };
        let machine = if located.store.file().is_some() { Machine::this().alone() } else { Machine::this() };
        Ok(Self {
            engine: Engine::open(&located.store, how)?,
            located,
            machine,
            ids: Mutex::new(random_ids()),
            visited: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            notes: Mutex::default(),
            ledger_home: OnceLock::new(),
            may_change_plans: OnceLock::new(),
        })
    }

    /// Creates the store and the repository's id, once, and opens the store. Running it again changes nothing.
    pub fn init(config: &Config, no_vcs: bool) -> Result<(Self, bool), Error> {
        let (located, new) = init(config, no_vcs)?;
        let mut session = Self::opened(located)?;
        if let Some(name) = session.new_name_of_worktree()? {
            session = session.renamed(name)?;
        }
        session.register()?;
        Ok((session, new))
    }

    /// Opens the store that `config` describes, and creates it if it does not exist. No repository is registered.
    pub fn found(config: &Config) -> Result<Self, Error> {
        Self::opened(Located { create: true, ..locate(config)? })
    }

    fn established(located: Located) -> Result<Self, Error> {
        let session = Self::opened(establish(located, &mut random_ids())?.0)?;
        session.register()?;
        Ok(session)
    }

    /// Registers the repository in the store.
    fn register(&self) -> Result<(), Error> {
        let (Some(checkout), Some(id)) = (&self.located.checkout, &self.located.repository) else { return Ok(()) };
        let known = self.knows(id)?;
        self.visit_now(checkout, id, true)?;
        self.registered.store(!known, Ordering::Relaxed);
        Ok(())
    }

    /// Whether `init` has just registered this repository in its store.
    pub fn newly_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    /// A recreated worktree gets a numbered name, so that it is not confused with the earlier one. The name is stored in the
    /// worktree's git directory, so this runs once. Skipped on a server, where the two timestamps come from different clocks.
    fn new_name_of_worktree(&self) -> Result<Option<String>, Error> {
        let Located { checkout: Some(checkout), repository: Some(id), store: Home::File(_), .. } = &self.located else {
            return Ok(None);
        };
        let Some(made) = checkout.unsettled() else { return Ok(None) };
        let name = &checkout.worktree;
        let again = format!("{name}{AGAIN}");
        let known = self.worktrees(id)?;
        let same = |known: &&Worktree| known.name == *name || known.name.starts_with(&again);
        let Some(last) = known.iter().filter(same).max_by_key(|known| known.seen) else { return Ok(None) };
        let made = made.duration_since(std::time::UNIX_EPOCH).map_or(0, |at| at.as_millis() as i64);
        let name = match made > last.seen.0 {
            true => {
                // A store of one worktree does not know the others; their directories are there.
                let stores = checkout.state_dir().join("worktrees");
                let taken = |name: &String| stores.join(name).exists() || known.iter().any(|known| known.name == *name);
                (2..).map(|number| format!("{again}{number}")).find(|name| !taken(name)).unwrap_or(again)
            }
            false => last.name.clone(),
        };
        // Where it cannot be settled it is asked again.
        let settled = checkout.mark(&name).is_ok();
        Ok(Some(name).filter(|name| settled && *name != checkout.worktree))
    }

    /// The same session under another name of its worktree, which may have a store of its own.
    fn renamed(mut self, name: String) -> Result<Self, Error> {
        let own = self.located.per_worktree;
        if let Some(checkout) = &mut self.located.checkout {
            checkout.worktree = name;
            if own {
                self.located.store = Home::File(worktree_store(checkout));
                return match self.located.store.missing() {
                    true if !self.located.create => {
                        Err(Error::NotInitialised { store: self.located.store.to_string() })
                    }
                    true => Self::established(self.located),
                    false => Self::opened(self.located),
                };
            }
        }
        Ok(self)
    }

    /// The location of everything.
    pub fn located(&self) -> &Located {
        &self.located
    }

    /// The store itself; refused if a server has it.
    pub fn store(&self) -> Result<&dyn Store, StoreError> {
        self.engine.store()
    }

    /// The engine that holds the store.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// This machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// This repository with all its worktrees; outside of a repository, the whole store.
    pub fn scope(&self) -> Scope {
        Scope { repository: self.located.repository.clone(), worktree: None }
    }

    /// This worktree only.
    pub fn here(&self) -> Scope {
        Scope { worktree: self.place().worktree, ..self.scope() }
    }

    fn place(&self) -> Place {
        Place {
            repository: self.located.repository.clone(),
            worktree: self.located.checkout.as_ref().map(|checkout| checkout.worktree.clone()),
        }
    }

    /// Runs a verb as the agent of this session.
    pub fn perform<V: Verb>(&self, verb: V) -> Result<V::Outcome, Error> {
        self.perform_as(&self.located.agent, None, verb)
    }

    /// Runs a verb as `actor` without updating ledgers; `toft_work::Work::act` does both. With `op`, a repeated call returns the
    /// first outcome and changes nothing.
    pub fn perform_as<V: Verb>(&self, actor: &str, op: Option<Operation>, verb: V) -> Result<V::Outcome, Error> {
        self.perform_waiting(actor, op, verb, Duration::ZERO)
    }

    /// The same. If nothing can be done now, a toft server waits up to `wait` until something can; other stores do not.
    pub fn perform_waiting<V: Verb>(
        &self,
        actor: &str,
        op: Option<Operation>,
        verb: V,
        wait: Duration,
    ) -> Result<V::Outcome, Error> {
        if V::ACCESS == Access::Write {
            self.visit()?;
        }
        self.run_waiting(actor, op, verb, wait)
    }

    /// Notes what failed after a verb. The token of a runner's agent ends with its lease: then its runner does the rest.
    pub fn note_failure(&self, what: &str, error: &Error) {
        let over = matches!(error, Error::Store(StoreError::Blocked { fault: Fault::Credentials, .. }));
        if !over || variable(MARK).is_none() {
            self.note(format!("{what}: {error}"));
        }
    }

    /// Records a note beside the outcome: a consequence of the command failed, but the outcome of the command is still valid.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// In a workspace: the checkout whose ledger is used, once it is determined.
    pub fn ledger_home(&self) -> &OnceLock<Option<Checkout>> {
        &self.ledger_home
    }

    /// The notes so far.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a verb without registering this checkout first.
    pub fn run<V: Verb>(&self, actor: &str, op: Option<Operation>, verb: V) -> Result<V::Outcome, Error> {
        self.run_waiting(actor, op, verb, Duration::ZERO)
    }

    fn run_waiting<V: Verb>(
        &self,
        actor: &str,
        op: Option<Operation>,
        verb: V,
        wait: Duration,
    ) -> Result<V::Outcome, Error> {
        let mut run = VerbRun::new(verb);
        self.perform_run(actor, op, &mut run, V::PROVES, wait)?;
        Ok(run.into_outcome()?)
    }

    /// Does the same for a verb of any type; the outcome is in the run.
    fn perform_run(
        &self,
        actor: &str,
        op: Option<Operation>,
        run: &mut dyn AnyRun,
        proves: bool,
        wait: Duration,
    ) -> Result<(), Error> {
        let holds = if proves { self.fences(actor) } else { Vec::new() };
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let mut caller = Caller {
            actor,
            place: self.place(),
            ids: &mut ids,
            processes: &self.machine,
            policy: &self.located.policy,
            holds: &holds,
            role: self.located.role.filter(|_| actor == self.located.agent),
            token: None,
            op,
        };
        Ok(self.engine.perform_run(&mut caller, run, wait)?)
    }

    /// Registers this checkout in the store before the first write from it. `init` did that for the main checkout of
    /// the repository's own store.
    fn visit(&self) -> Result<(), Error> {
        let (Some(checkout), Some(id)) = (&self.located.checkout, &self.located.repository) else { return Ok(()) };
        let known = checkout.worktree == MAIN && self.located.own_store();
        if known || self.visited.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.visit_now(checkout, id, false) {
            // The token of an agent registers nothing; its runner did.
            Ok(()) | Err(Error::Refused(Refusal::TokenDenied { .. })) => {}
            Err(error) => return Err(error),
        }
        self.visited.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Registers this checkout in the store, unless it is registered.
    fn visit_now(&self, checkout: &Checkout, id: &RepositoryId, registering: bool) -> Result<(), Error> {
        let path = checkout.root.display().to_string();
        let known = self.worktrees(id)?;
        let same = |worktree: &&Worktree| worktree.name == checkout.worktree;
        match known.iter().find(same) {
            Some(worktree) if worktree.path == path && !registering => return Ok(()),
            // Another clone has a checkout of that name; it was there first.
            Some(_) if !registering && !self.located.own_store() => return Ok(()),
            _ => {}
        }
        let identity = match registering {
            true => toft_vcs::identity(checkout, self.machine.machine_id())
                .map_err(toft_vcs::workspace::WorkspaceError::from)?,
            false => toft_vcs::Identity::default(),
        };
        let request = visit::Request {
            repository: Repository {
                id: id.clone(),
                name: checkout.name(),
                vcs: checkout.vcs.as_str().into(),
                common_dir: checkout.common_dir.display().to_string(),
                roots: identity.roots,
                remotes: identity.remotes,
                clone_url: None,
                created: Timestamp::default(),
            },
            worktree: Worktree {
                repository: id.clone(),
                name: checkout.worktree.clone(),
                path,
                seen: Timestamp::default(),
            },
        };
        self.run(&self.located.agent, None, request).map(drop)
    }

    /// Creates a workflow from a plan and starts it.
    pub fn start_flow(&self, plan: &FlowPlan) -> Result<flow::Outcome, Error> {
        let source = FlowSource::Prompt { text: plan.title.clone() };
        self.perform(flow::New { plan: plan.clone(), source, hold: false })
    }

    /// Waits until another connection commits or the time is up; returns the new change counter.
    pub fn wait_for_change(&self, pulse: u64, until: Instant) -> Result<u64, Error> {
        if let Engine::Remote(remote) = &self.engine {
            return Ok(remote.changes(Some(pulse), until.saturating_duration_since(Instant::now()))?);
        }
        let mut pause = FIRST_LOOK;
        loop {
            let now = self.engine.change_counter()?;
            if now != pulse || Instant::now() >= until {
                return Ok(now);
            }
            thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Calls `look` after each commit, and at least every `Engine::look_again_after`, until it returns a value or
    /// `patience` runs out.
    pub fn wait_for<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let until = Instant::now() + patience;
        let mut pulse = self.engine.change_counter()?;
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            pulse = self.wait_for_change(pulse, until.min(Instant::now() + self.engine.look_again_after()))?;
        }
    }

    /// Events after `after`, waiting for new ones.
    pub fn events(&self, after: u64) -> Events<'_> {
        Events::new(self, after)
    }

    /// A value for a checkpoint; a large one is written beside the store.
    pub fn detail(&self, value: Value) -> Result<Detail, Error> {
        self.engine.keep_detail(value)
    }

    /// The value of a checkpoint's detail.
    pub fn load_detail(&self, detail: &Detail) -> Result<Value, Error> {
        self.engine.load_detail(detail)
    }
}

/// An id generator with the system's randomness.
pub fn random_ids() -> IdGenerator {
    IdGenerator::new(|bytes| {
        if getrandom::fill(bytes).is_err() {
            // Without randomness two processes could make the same id; better to stop here.
            std::process::abort();
        }
    })
}
