//! An open toft: a store, and whoever asks from wherever they are.

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
    repository::{Place, Repository, Scope, Worktree},
    store::{self, Access, Store},
    time::Timestamp,
    verbs::{Caller, Operation, Verb, flow, perform, visit},
};
use toft_vcs::{AGAIN, Checkout, MAIN};

use crate::{
    config::Config,
    engine::{Engine, Home, Open},
    error::Error,
    events::Events,
    holds::write_private,
    locate::{Located, establish, init, locate, worktree_store},
    machine::Machine,
};

/// How often a waiter looks whether anything changed: soon at first, then less and less.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// An open store, and who asks from where. Cheap to share between threads; one transaction at a time.
pub struct Session {
    engine: Engine,
    located: Located,
    machine: Machine,
    ids: Mutex<IdGenerator>,
    visited: AtomicBool,
    registered: AtomicBool,
    notes: Mutex<Vec<String>>,
    /// In a workspace: the checkout whose ledger counts.
    ledger_home: OnceLock<Option<Checkout>>,
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

    /// Opens a store that was located. A repository that it does not know is refused: `init` registers it.
    pub fn at(located: Located) -> Result<Self, Error> {
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

    /// Whether the store knows this repository. It never forgets one, so a clone remembers that it was there.
    fn is_registered(&self) -> Result<bool, Error> {
        let Some(id) = &self.located.repository else { return Ok(false) };
        let remembered = self.located.registered_mark();
        if remembered.as_ref().is_some_and(|path| path.exists()) {
            return Ok(true);
        }
        let known = store::ask(self.store(), |tx| tx.repositories())?.iter().any(|known| known.id == *id);
        if let Some(path) = remembered.filter(|_| known) {
            // Where it cannot be remembered it is asked again.
            let _ = write_private(&path, b"");
        }
        Ok(known)
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
        })
    }

    /// Makes the store and the repository's id, once, and opens it. Running it again changes nothing.
    pub fn init(config: &Config, no_vcs: bool) -> Result<(Self, bool), Error> {
        let (located, new) = init(config, no_vcs)?;
        let mut session = Self::opened(located)?;
        if let Some(name) = session.new_name_of_worktree()? {
            session = session.renamed(name)?;
        }
        session.register()?;
        Ok((session, new))
    }

    fn established(located: Located) -> Result<Self, Error> {
        let session = Self::opened(establish(located, &mut random_ids())?.0)?;
        session.register()?;
        Ok(session)
    }

    /// Makes the repository known to the store.
    fn register(&self) -> Result<(), Error> {
        let (Some(checkout), Some(id)) = (&self.located.checkout, &self.located.repository) else { return Ok(()) };
        let known = store::ask(self.store(), |tx| tx.repositories())?.iter().any(|known| known.id == *id);
        self.visit_now(checkout, id, true)?;
        self.registered.store(!known, Ordering::Relaxed);
        Ok(())
    }

    /// Whether `init` made this repository known to its store just now.
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
        let known = store::ask(self.store(), |tx| tx.worktrees(id))?;
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

    /// The same under another name of its worktree, which may have a store of its own.
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

    /// Where everything is.
    pub fn located(&self) -> &Located {
        &self.located
    }

    /// The store itself.
    pub fn store(&self) -> &dyn Store {
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

    /// This repository with all its worktrees; the whole store outside of any.
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

    /// Runs a verb as the agent this toft was opened for.
    pub fn perform<V: Verb>(&self, verb: V) -> Result<V::Outcome, Error> {
        self.perform_as(&self.located.agent, None, verb)
    }

    /// Runs a verb as `actor` without updating ledgers; `toft_work::Work::act` does both. With `op`, a repeated call returns the
    /// first outcome and changes nothing.
    pub fn perform_as<V: Verb>(&self, actor: &str, op: Option<Operation>, verb: V) -> Result<V::Outcome, Error> {
        if V::ACCESS == Access::Write {
            self.visit()?;
        }
        self.run(actor, op, verb)
    }

    /// Keeps a word that goes beside the outcome: something that followed from a command did not work, and the command's
    /// outcome stands all the same.
    pub fn note(&self, text: impl Into<String>) {
        let text = text.into();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// In a workspace: the checkout whose ledger counts, once that was found out.
    pub fn ledger_home(&self) -> &OnceLock<Option<Checkout>> {
        &self.ledger_home
    }

    /// What goes beside the outcomes so far.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a verb without registering this checkout first.
    pub fn run<V: Verb>(&self, actor: &str, op: Option<Operation>, verb: V) -> Result<V::Outcome, Error> {
        let holds = if V::PROVES { self.fences(actor) } else { Vec::new() };
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let mut caller = Caller {
            actor,
            place: self.place(),
            ids: &mut ids,
            processes: &self.machine,
            policy: &self.located.policy,
            holds: &holds,
            role: self.located.role.filter(|_| actor == self.located.agent),
            op,
        };
        Ok(perform(self.store(), &mut caller, verb)?)
    }

    /// Makes this checkout known to the store before the first write from it. `init` did that for the main
    /// one of the repository's own store.
    fn visit(&self) -> Result<(), Error> {
        let (Some(checkout), Some(id)) = (&self.located.checkout, &self.located.repository) else { return Ok(()) };
        let known = checkout.worktree == MAIN && self.located.own_store();
        if known || self.visited.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.visit_now(checkout, id, false)?;
        self.visited.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes this checkout known to the store, unless it is.
    fn visit_now(&self, checkout: &Checkout, id: &RepositoryId, registering: bool) -> Result<(), Error> {
        let path = checkout.root.display().to_string();
        let known = store::ask(self.store(), |tx| tx.worktrees(id))?;
        let same = |worktree: &&Worktree| worktree.name == checkout.worktree;
        match known.iter().find(same) {
            Some(worktree) if worktree.path == path && !registering => return Ok(()),
            // Another clone has a checkout of that name; it was there first.
            Some(_) if !registering && !self.located.own_store() => return Ok(()),
            _ => {}
        }
        let identity = match registering {
            true => toft_vcs::identity(checkout, self.machine.machine_name())
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

    /// Makes a workflow from a plan and starts it.
    pub fn start_flow(&self, plan: &FlowPlan) -> Result<flow::Outcome, Error> {
        let source = FlowSource::Prompt { text: plan.title.clone() };
        self.perform(flow::New { plan: plan.clone(), source, hold: false })
    }

    /// Waits until somebody commits or the time is up; gives the new pulse.
    pub fn wait_for_change(&self, pulse: u64, until: Instant) -> Result<u64, Error> {
        let mut pause = FIRST_LOOK;
        loop {
            let now = self.store().change_counter()?;
            if now != pulse || Instant::now() >= until {
                return Ok(now);
            }
            thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Calls `look` after each commit, and at least every `Store::look_again_after`, until it returns a value or `patience` runs
    /// out.
    pub fn wait_for<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let until = Instant::now() + patience;
        let mut pulse = self.store().change_counter()?;
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            pulse = self.wait_for_change(pulse, until.min(Instant::now() + self.store().look_again_after()))?;
        }
    }

    /// History from `after` on, waiting for what comes.
    pub fn events(&self, after: u64) -> Events<'_> {
        Events::new(self, after)
    }

    /// A value as a checkpoint keeps it; a large one is written beside the store.
    pub fn detail(&self, value: Value) -> Result<Detail, Error> {
        self.engine.keep_detail(value)
    }

    /// The value that a checkpoint's detail stands for.
    pub fn load_detail(&self, detail: &Detail) -> Result<Value, Error> {
        self.engine.load_detail(detail)
    }
}

/// Ids from the system's randomness.
pub fn random_ids() -> IdGenerator {
    IdGenerator::new(|bytes| {
        if getrandom::fill(bytes).is_err() {
            // Without randomness two processes could make the same id; better to stop here.
            std::process::abort();
        }
    })
}
