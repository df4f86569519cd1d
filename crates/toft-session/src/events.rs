//! The event log as an iterator that can wait.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use toft_core::{change::Event, repository::Scope, verbs::log};

use crate::{error::Error, session::Session};

/// Number of events read at a time.
const PAGE: usize = 256;

/// Events in order, from a cursor. By default the iterator never ends: it waits for the next event.
///
/// ```
/// # use toft_core::flow::WorkflowPlan;
/// # use toft_session::{Error, Session, config::{Config, StoreLocation}};
/// # use std::time::Duration;
/// # fn main() -> Result<(), Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let config = Config { store: Some(StoreLocation::new_path(dir.path().join("demo.db"))), ..Config::default() };
/// # let session = Session::with(config)?;
/// session.start_flow(&WorkflowPlan::single("Sweep the yard"))?;
/// for event in session.events(0).patience(Duration::from_millis(100)) {
///     let event = event?;
///     println!("{} {} {}", event.seq, event.actor, event.verb);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Events<'a> {
    session: &'a Session,
    scope: Scope,
    cursor: u64,
    read: VecDeque<Event>,
    patience: Option<Duration>,
}

impl<'a> Events<'a> {
    pub(crate) fn new(session: &'a Session, after: u64) -> Self {
        Self { session, scope: Scope::default(), cursor: after, read: VecDeque::new(), patience: None }
    }

    /// Ends when no event was appended for this long.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Only events in this scope.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    fn fill(&mut self) -> Result<(), Error> {
        let until = self.patience.map(|patience| Instant::now() + patience);
        loop {
            let pulse = self.session.engine().change_counter()?;
            let request = log::Request {
                scope: self.scope.clone(),
                after: Some(self.cursor),
                limit: PAGE,
                ..log::Request::default()
            };
            self.read = self.session.perform(request)?.into();
            if !self.read.is_empty() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
            let soon = Instant::now() + self.session.engine().look_again_after();
            self.session.wait_for_change(pulse, until.map_or(soon, |until| until.min(soon)))?;
        }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.read.is_empty()
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        let event = self.read.pop_front()?;
        self.cursor = event.seq;
        Some(Ok(event))
    }
}
