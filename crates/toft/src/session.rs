//! An open toft: a store, and whoever asks from wherever they are.

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use toft_core::{
    checkpoint::Detail,
    flow::{Plan as FlowPlan, Source as FlowSource},
    id::{Mint, OpId, RepositoryId},
    refusal::Refusal,
    repository::{Place, Repository, Scope, Worktree},
    store::{self, Access, Store},
    time::Timestamp,
    verbs::{
        Caller, Verb, claim, finish, flow, perform, ready,
        undo::{self, Undo, Undone, Way},
        visit,
    },
    workspace::Keep,
};
use toft_vcs::{Checkout, MAIN};

use crate::{
    config::Config,
    engine::{Engine, Open},
    error::Error,
    events::Events,
    locate::{Located, init, locate},
    machine::Machine,
    plan::{self, Plan},
    worker::AgentBuilder,
    workspaces::Tidied,
};

/// How often a waiter looks whether anything changed: soon at first, then less and less.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// An open store, and who asks from where. Cheap to share between threads; one transaction at a time.
pub struct Toft {
    engine: Engine,
    located: Located,
    machine: Machine,
    mint: Mutex<Mint>,
    visited: AtomicBool,
}

impl Toft {
    /// Opens the store that the command line would use in `dir`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::with(Config { dir: Some(dir.into()), ..Config::default() })
    }

    /// Opens the store that `config` describes.
    #[expect(clippy::needless_pass_by_value, reason = "callers build it in place")]
    pub fn with(config: Config) -> Result<Self, Error> {
        Self::at(locate(&config)?)
    }

    /// Opens a store that was located.
    pub fn at(located: Located) -> Result<Self, Error> {
        let how = match (located.create, located.brief) {
            (true, _) => Open::Create,
            (false, true) => Open::Briefly,
            (false, false) => Open::Known,
        };
        Ok(Self {
            engine: Engine::open(&located.store, how)?,
            located,
            machine: Machine::this(),
            mint: Mutex::new(random_mint()),
            visited: AtomicBool::new(false),
        })
    }

    /// Makes the store and the repository's id, once, and opens it. Running it again changes nothing.
    pub fn init(config: &Config, no_vcs: bool) -> Result<(Self, bool), Error> {
        let (located, new) = init(config, no_vcs)?;
        let toft = Self::at(located)?;
        if let (Some(checkout), Some(id)) = (&toft.located.checkout, &toft.located.repository) {
            toft.visit_now(checkout, id)?;
        }
        Ok((toft, new))
    }

    /// Where everything is.
    pub fn located(&self) -> &Located {
        &self.located
    }

    /// The store itself.
    pub fn store(&self) -> &dyn Store {
        self.engine.store()
    }

    pub(crate) fn engine(&self) -> &Engine {
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

    /// Runs a verb as `actor`. With an operation id, running it again answers as before and changes nothing.
    pub fn perform_as<V: Verb>(&self, actor: &str, op: Option<OpId>, verb: V) -> Result<V::Outcome, Error> {
        if V::ACCESS == Access::Write {
            self.visit()?;
        }
        let outcome = self.run(actor, op, verb);
        // A claim that found nothing may have taken back what somebody lost.
        let answered = matches!(outcome, Ok(_) | Err(Error::Refused(_)));
        if V::ENDS
            && answered
            && let Some(plan) = self.plan()?
        {
            // What a ledger cannot be told now it is told after the next such verb; the doctor says what waits.
            let _ = plan.tell();
        }
        outcome
    }

    /// Ends a hold as `actor`.
    pub fn finish(&self, actor: &str, op: Option<OpId>, request: finish::Request) -> Result<finish::Outcome, Error> {
        let outcome = self.give_back(actor, op, request)?;
        // Looking into a workspace that stays would take longer than everything else.
        if self.located.workspaces.keep != Keep::Always {
            self.let_go_of_workspace(actor, &outcome.task)?;
        }
        Ok(outcome)
    }

    fn give_back(&self, actor: &str, op: Option<OpId>, request: finish::Request) -> Result<finish::Outcome, Error> {
        let outcome = self.perform_as(actor, op, request)?;
        if let Some(plan) = self.plan()? {
            plan.given_back(&outcome)?;
        }
        Ok(outcome)
    }

    /// Ends a hold as `actor`, and says what became of its workspace: it went if configuration lets it, or what is in it.
    pub fn finish_and_tidy(
        &self,
        actor: &str,
        op: Option<OpId>,
        request: finish::Request,
    ) -> Result<(finish::Outcome, Option<Tidied>), Error> {
        let outcome = self.give_back(actor, op, request)?;
        let tidied = self.let_go_of_workspace(actor, &outcome.task)?;
        Ok((outcome, tidied))
    }

    fn checkout(&self) -> Result<&Checkout, Error> {
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        self.located.checkout.as_ref().ok_or_else(nowhere)
    }

    /// Keeps issues in the working tree from now on, where they are reviewed and committed like code.
    pub fn keep_issues_in_tree(&self) -> Result<(), Error> {
        plan::make_tree_ledger(self.checkout()?)
    }

    /// From now on new issues go to a private ledger, of which the repository sees nothing. Gives where it is.
    pub fn plan_in_private(&self, how: &plan::Private) -> Result<PathBuf, Error> {
        let repository = self.located.repository.as_ref().map(ToString::to_string).unwrap_or_default();
        how.begin(self.checkout()?, &repository)
    }

    /// From now on new issues go to the repository's own ledger again.
    pub fn plan_in_public(&self) -> Result<(), Error> {
        plan::plan_in_public(self.checkout()?)
    }

    /// Lets this clone see another ledger.
    pub fn add_ledger(&self, name: &str, dir: &Path, read_only: bool) -> Result<(), Error> {
        plan::add(self.checkout()?, name, dir, read_only)
    }

    /// Lets this clone no longer see a ledger, which stays as it is.
    pub fn remove_ledger(&self, name: &str) -> Result<(), Error> {
        plan::remove(self.checkout()?, name)
    }

    /// Issues as this checkout sees them; `None` outside of one.
    pub fn plan(&self) -> Result<Option<Plan<'_>>, Error> {
        Plan::open(self)
    }

    /// Claims as `actor`: a task, or an issue that is started by it.
    pub fn claim(&self, actor: &str, op: Option<OpId>, mut request: claim::Request) -> Result<claim::Outcome, Error> {
        let plan = self.plan()?;
        if let Some(plan) = &plan {
            plan.offer_to(&mut request)?;
        }
        let outcome = self.perform_as(actor, op, request)?;
        if let Some(plan) = &plan {
            plan.started(actor, &outcome)?;
        }
        Ok(outcome)
    }

    /// What can start now: tasks, and issues that nobody is on.
    pub fn ready(&self, request: ready::Request) -> Result<ready::Outcome, Error> {
        self.ready_for(&self.located.agent, request)
    }

    /// The same, as `actor` sees it.
    pub fn ready_for(&self, actor: &str, mut request: ready::Request) -> Result<ready::Outcome, Error> {
        let plan = self.plan()?;
        let mut asked = request.limit + 1;
        loop {
            if let Some(plan) = &plan {
                request.offers = plan.offers(&request.labels, request.mine, asked)?;
            }
            let all = request.offers.len() < asked;
            let outcome = self.run(actor, None, request.clone())?;
            // A ledger elsewhere in time may offer what somebody is on already.
            if all || outcome.ready.len() >= request.limit {
                return Ok(outcome);
            }
            asked *= 4;
        }
    }

    /// Takes the last operations of `actor` back, the newest first, as long as each can be; with `try_only` says which.
    pub fn undo(&self, actor: &str, count: usize, try_only: bool) -> Result<Vec<Undo>, Error> {
        let last = self.perform_as(actor, None, undo::Last { scope: self.scope(), count })?;
        let mut done = Vec::new();
        for undo in last {
            let taken = undo.allowed().map_err(Error::from).and_then(|()| match try_only {
                true => Ok(()),
                false => self.take_back(actor, &undo),
            });
            match taken {
                Ok(()) => done.push(undo),
                Err(error) if done.is_empty() => return Err(error),
                // What was taken back before it is worth saying; asking again tells why this one stays.
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn take_back(&self, actor: &str, undo: &Undo) -> Result<(), Error> {
        let mut by = Vec::new();
        let mut op = || {
            by.push(OpId::known(format!("undo-{}", random_mint().word())));
            by.last().cloned()
        };
        let mut step = |workflow: &String, to| {
            let request = flow::Move { id: workflow.clone(), to, reason: Some("undone".into()) };
            self.perform_as(actor, op(), request).map(drop)
        };
        match &undo.way {
            Way::Issues { issues } => match self.plan()? {
                Some(plan) => plan.take_back(issues).map(drop)?,
                None => return Err(Error::NoRepository { dir: PathBuf::from(".") }),
            },
            Way::Release { holds } => {
                for (task, fence) in holds {
                    let (id, fence) = (Some(task.clone()), Some(fence.clone()));
                    let request = finish::Request { id, fence, ..finish::Request::default() };
                    self.finish(actor, op(), request)?;
                }
            }
            Way::Abandon { workflow } => step(workflow, flow::Step::Abandon)?,
            Way::Resume { workflow } => step(workflow, flow::Step::Resume)?,
            Way::Pause { workflow } => step(workflow, flow::Step::Pause)?,
            Way::Not { .. } => {}
        }
        self.perform_as(actor, None, Undone { undo: undo.clone(), by })
    }

    fn run<V: Verb>(&self, actor: &str, op: Option<OpId>, verb: V) -> Result<V::Outcome, Error> {
        let mut mint = self.mint.lock().unwrap_or_else(PoisonError::into_inner);
        let mut caller = Caller {
            actor,
            place: self.place(),
            mint: &mut mint,
            processes: &self.machine,
            policy: &self.located.policy,
            op,
        };
        Ok(perform(self.store(), &mut caller, verb)?)
    }

    /// Makes this checkout known to the store before the first write from it. `init` did that for the main
    /// one of the repository's own store.
    fn visit(&self) -> Result<(), Error> {
        let (Some(checkout), Some(id)) = (&self.located.checkout, &self.located.repository) else { return Ok(()) };
        let known = checkout.worktree == MAIN && self.located.own_store();
        if known || self.visited.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.visit_now(checkout, id)
    }

    /// Makes this checkout known to the store, unless it is.
    fn visit_now(&self, checkout: &Checkout, id: &RepositoryId) -> Result<(), Error> {
        let path = checkout.root.display().to_string();
        let known = store::ask(self.store(), |tx| tx.worktrees(id))?;
        if known.iter().any(|worktree| worktree.name == checkout.worktree && worktree.path == path) {
            return Ok(());
        }
        let request = visit::Request {
            repository: Repository {
                id: id.clone(),
                name: checkout.name(),
                vcs: checkout.vcs.as_str().into(),
                common_dir: checkout.common_dir.display().to_string(),
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

    /// An agent to claim as.
    pub fn agent(&self, name: impl Into<String>) -> AgentBuilder<'_> {
        AgentBuilder::new(self, name.into())
    }

    /// Makes a workflow from a plan and starts it.
    pub fn start_flow(&self, plan: &FlowPlan) -> Result<flow::Outcome, Error> {
        let source = FlowSource::Prompt { text: plan.title.clone() };
        self.perform(flow::New { plan: plan.clone(), source, hold: false })
    }

    /// Claims as `actor`, and waits up to `patience` for something to become ready.
    pub fn claim_waiting(
        &self,
        actor: &str,
        op: Option<&OpId>,
        request: &claim::Request,
        patience: Duration,
    ) -> Result<claim::Outcome, Error> {
        let until = Instant::now() + patience;
        loop {
            let pulse = self.store().pulse()?;
            let refused = match self.claim(actor, op.cloned(), request.clone()) {
                Err(Error::Refused(
                    refusal @ (Refusal::NothingReady { .. }
                    | Refusal::LeaseHeld { .. }
                    | Refusal::NotReady { .. }
                    | Refusal::IssueNotReady { .. }),
                )) => refusal,
                other => return other,
            };
            if !self.wait_until_promising(actor, request, pulse, until)? {
                return Err(refused.into());
            }
        }
    }

    /// Waits until claiming is worth another try; false when the time is up. Only looks, so waiters disturb nobody.
    fn wait_until_promising(
        &self,
        actor: &str,
        request: &claim::Request,
        mut pulse: u64,
        until: Instant,
    ) -> Result<bool, Error> {
        while Instant::now() < until {
            pulse = self.wait_for_change(pulse, until.min(Instant::now() + self.store().look_again_after()))?;
            let promising = match &request.id {
                Some(_) => true,
                None => {
                    let look = ready::Request {
                        scope: request.scope.clone(),
                        labels: request.labels.clone(),
                        limit: 1,
                        mine: true,
                        ..ready::Request::default()
                    };
                    !self.ready_for(actor, look)?.ready.is_empty()
                }
            };
            if promising {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until somebody commits or the time is up; gives the new pulse.
    pub(crate) fn wait_for_change(&self, pulse: u64, until: Instant) -> Result<u64, Error> {
        let mut pause = FIRST_LOOK;
        loop {
            let now = self.store().pulse()?;
            if now != pulse || Instant::now() >= until {
                return Ok(now);
            }
            thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Calls `look` until it answers, after each change and at least every second, up to `patience`.
    pub fn wait_for<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let until = Instant::now() + patience;
        let mut pulse = self.store().pulse()?;
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
pub(crate) fn random_mint() -> Mint {
    Mint::new(|bytes| {
        if getrandom::fill(bytes).is_err() {
            // Without randomness two processes could make the same id; better to stop here.
            std::process::abort();
        }
    })
}
