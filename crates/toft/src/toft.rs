//! An open toft: a session, with handles for everything that it can do.

use std::{ops::Deref, path::PathBuf};

use toft_core::repository::Scope;
use toft_plan::{Ledgers, Plan};
use toft_runner::{Attempts, briefing::Briefing, hooks::Hooks};
use toft_session::{Error, Session, config::Config, locate::Located, repositories};
use toft_work::{Work, workspaces::Workspaces};

use crate::worker::AgentBuilder;

/// An open store, the caller and its location. Cheap to share between threads; one transaction at a time.
pub struct Toft {
    session: Session,
}

impl Toft {
    /// Opens the store that the command line would use in `dir`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        Session::open(dir).map(Self::from)
    }

    /// Opens the store that `config` describes.
    pub fn with(config: Config) -> Result<Self, Error> {
        Session::with(config).map(Self::from)
    }

    /// Opens a located store. A repository that the store does not know is refused: `init` registers it.
    pub fn at(located: Located) -> Result<Self, Error> {
        Session::at(located).map(Self::from)
    }

    /// Opens a located store to look after it, which may be on PostgreSQL, too.
    pub fn looked_after(located: Located) -> Result<Self, Error> {
        Session::looked_after(located).map(Self::from)
    }

    /// Creates the store and the repository's id, once, and opens the store; returns whether it is new. Running it
    /// again changes nothing.
    pub fn init(config: &Config, no_vcs: bool) -> Result<(Self, bool), Error> {
        let (session, new) = Session::init(config, no_vcs)?;
        Ok((session.into(), new))
    }

    /// Opens the store that `config` describes, and creates it if it does not exist. No repository is registered.
    pub fn found(config: &Config) -> Result<Self, Error> {
        Ok(Session::found(config)?.into())
    }

    /// An agent to claim as.
    pub fn agent(&self, name: impl Into<String>) -> AgentBuilder<'_> {
        AgentBuilder::new(self, name.into())
    }

    /// The issues of this checkout; `None` outside of a checkout.
    pub fn plan(&self) -> Result<Option<Plan<'_>>, Error> {
        Plan::open(&self.session)
    }

    /// Sends issues that were written here to the server of this session, if it has one. What does not work is a note.
    pub fn tell_server(&self) {
        if !self.session.engine().waits() {
            return;
        }
        match self.plan() {
            Ok(Some(plan)) => plan.tell_server(),
            Ok(None) => {}
            Err(error) => self.session.note(format!("issues were not exchanged with the server: {error}")),
        }
    }

    /// The ledgers of this checkout.
    pub fn ledgers(&self) -> Ledgers<'_> {
        Ledgers::of(&self.session)
    }

    /// Claiming and finishing work.
    pub fn work(&self) -> Work<'_> {
        Work::of(&self.session)
    }

    /// The workspaces of this repository on this machine.
    pub fn workspaces(&self) -> Result<Workspaces<'_>, Error> {
        self.work().workspaces()
    }

    /// Briefings for agents.
    pub fn briefing(&self) -> Briefing<'_> {
        Briefing::of(self.work())
    }

    /// Handles the calls of a harness.
    pub fn hooks(&self) -> Hooks<'_> {
        Hooks::of(self.work())
    }

    /// The logs of attempts.
    pub fn attempts(&self) -> Attempts<'_> {
        Attempts::of(self.work())
    }

    /// A text for display, with ids abbreviated as far as they are unique in the store and the ledgers.
    pub fn shorten_ids(&self, text: &str) -> String {
        toft_plan::shorten_ids(&self.session, text)
    }

    /// The session itself, for a runner's slot.
    pub fn into_session(self) -> Session {
        self.session
    }
}

impl From<Session> for Toft {
    fn from(session: Session) -> Self {
        Self { session }
    }
}

impl Deref for Toft {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// One repository that a question about all of them is put to.
#[non_exhaustive]
pub struct Reached {
    /// The store, opened in a clone of the repository if this machine has one.
    pub toft: Toft,
    /// The repository in it.
    pub scope: Scope,
    /// Its name; none for a store that no repository uses.
    pub name: Option<String>,
    /// Its ledgers were not already covered through another store.
    pub ledgers: bool,
}

impl From<repositories::ReachedSession> for Reached {
    fn from(reached: repositories::ReachedSession) -> Self {
        let repositories::ReachedSession { session, scope, name, ledgers } = reached;
        Self { toft: session.into(), scope, name, ledgers }
    }
}

/// Every repository of every store of this user, and of the store of `config`; each once. A store that cannot be read
/// is one entry of the second list.
pub fn every_repository(config: &Config) -> Result<(Vec<Reached>, Vec<String>), Error> {
    let (all, bad) = repositories::every_repository(config)?;
    Ok((all.into_iter().map(Reached::from).collect(), bad))
}
