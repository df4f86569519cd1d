//! Workers: an agent that claims jobs and finishes them, with its lease tied to this process.

use std::time::Duration;

use serde_json::Value;
use toft_core::{
    agent::{Agent, Role},
    checkpoint::Checkpoint,
    flow::{Evidence, Task},
    refusal::Refusal,
    repository::Scope,
    time::Timestamp,
    verbs::{
        agent::Register,
        claim::{self, Claimed, Hold},
        finish::{self, How, WaitFor},
        renew, save, show,
    },
};

use crate::{
    error::Error,
    session::Toft,
    workspaces::{Given, Wanted},
};

/// An agent about to register.
pub struct AgentBuilder<'a> {
    toft: &'a Toft,
    request: Register,
    name: String,
}

impl<'a> AgentBuilder<'a> {
    pub(crate) fn new(toft: &'a Toft, name: String) -> Self {
        Self { toft, request: Register { name: Some(name.clone()), ..Register::default() }, name }
    }

    /// What it is for.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.request.role = Some(role);
        self
    }

    /// Something it can do; tasks may require it.
    #[must_use]
    pub fn can(mut self, tag: impl Into<String>) -> Self {
        self.request.capabilities.push(tag.into());
        self
    }

    /// Makes it known.
    pub fn register(self) -> Result<Worker<'a>, Error> {
        let agent = self.toft.perform_as(&self.name, None, self.request)?;
        Ok(Worker { toft: self.toft, agent })
    }
}

/// What to claim.
#[derive(Clone, Debug, Default)]
pub struct Query {
    id: Option<String>,
    labels: Vec<String>,
    scope: Option<Scope>,
    ttl: Option<Duration>,
    wait: Option<Duration>,
}

impl Query {
    /// The best that is ready in this repository.
    pub fn ready() -> Self {
        Self::default()
    }

    /// A certain task, by id or prefix.
    pub fn task(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..Self::default() }
    }

    /// Only with this label.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// From elsewhere than this repository.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Another time to live than the usual.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Wait this long for something to become ready.
    #[must_use]
    pub fn wait(mut self, patience: Duration) -> Self {
        self.wait = Some(patience);
        self
    }
}

/// A registered agent.
pub struct Worker<'a> {
    toft: &'a Toft,
    agent: Agent,
}

impl<'a> Worker<'a> {
    /// Who it is.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Takes one job; nothing if none is ready.
    pub fn claim(&self, query: Query) -> Result<Option<Job<'a>>, Error> {
        Ok(self.claim_many(query, 1)?.pop())
    }

    /// Takes up to `count` jobs in one transaction.
    pub fn claim_many(&self, query: Query, count: usize) -> Result<Vec<Job<'a>>, Error> {
        let request = claim::Request {
            offers: Vec::new(),
            id: query.id,
            count,
            labels: query.labels,
            scope: query.scope.unwrap_or_else(|| self.toft.scope()),
            ttl: query.ttl,
            cap: None,
            take_over: false,
            holder: self.toft.machine().this_process(),
        };
        let claimed = match query.wait {
            Some(patience) => self.toft.claim_waiting(&self.agent.name, None, &request, patience),
            None => self.toft.claim(&self.agent.name, None, request),
        };
        match claimed {
            Ok(outcome) => Ok(outcome.claims.into_iter().map(|claimed| self.job(claimed)).collect()),
            Err(Error::Refused(Refusal::NothingReady { .. })) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn job(&self, claimed: Claimed) -> Job<'a> {
        Job { toft: self.toft, agent: self.agent.name.clone(), claimed }
    }
}

/// A task this worker holds. Every write names its fence, so a lost hold changes nothing.
pub struct Job<'a> {
    toft: &'a Toft,
    agent: String,
    claimed: Claimed,
}

impl<'a> Job<'a> {
    /// What is to be done.
    pub fn task(&self) -> &Task {
        &self.claimed.task
    }

    /// The hold on it.
    pub fn hold(&self) -> &Hold {
        &self.claimed.lease
    }

    /// Where an earlier holder got to.
    pub fn resume(&self) -> Option<&Checkpoint> {
        self.claimed.resume.as_ref()
    }

    /// A directory of its own to do it in. Without one there is no hold any more: it was given back.
    pub fn workspace(&self) -> Result<Given, Error> {
        self.toft.workspace_for(&self.agent, &self.claimed, Wanted::default(), |_| {})
    }

    /// Keeps the hold for another time to live.
    pub fn renew(&self) -> Result<Timestamp, Error> {
        let holds = vec![(self.task().id.clone(), self.hold().fence())];
        let outcome = self.toft.perform_as(&self.agent, None, renew::Request { holds, ttl: None })?;
        Ok(outcome.renewed.first().map(|(_, until)| *until).unwrap_or_default())
    }

    /// Notes progress.
    pub fn save(&self, message: impl Into<String>) -> Result<Checkpoint, Error> {
        let saved = self.toft.perform_as(
            &self.agent,
            None,
            save::Request { message: Some(message.into()), ..self.saving() },
        )?;
        saved
            .checkpoint
            .ok_or_else(|| Refusal::NotFound { what: "checkpoint", text: self.task().id.to_string() }.into())
    }

    /// Keeps a value under a key; the same again changes nothing.
    pub fn put(&self, key: impl Into<String>, value: Value) -> Result<bool, Error> {
        let request = save::Request { state: Some((key.into(), value)), ..self.saving() };
        Ok(self.toft.perform_as(&self.agent, None, request)?.changed)
    }

    /// The value under a key, whoever wrote it.
    pub fn get(&self, key: impl Into<String>) -> Result<Option<Value>, Error> {
        let request =
            show::Request { id: self.task().id.to_string(), state: Some(key.into()), ..show::Request::default() };
        match self.toft.perform_as(&self.agent, None, request) {
            Ok(show::Outcome::State { value, .. }) => Ok(Some(value)),
            Ok(_) | Err(Error::Refused(Refusal::NotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn saving(&self) -> save::Request {
        save::Request {
            id: Some(self.task().id.to_string()),
            fence: Some(self.hold().fence()),
            ..save::Request::default()
        }
    }

    fn finish(self, how: How, message: String) -> Finish<'a> {
        let request = finish::Request {
            id: Some(self.task().id.to_string()),
            fence: Some(self.hold().fence()),
            how,
            message,
            ..finish::Request::default()
        };
        Finish { toft: self.toft, agent: self.agent, request }
    }

    /// Done; say what shows it before committing.
    pub fn done(self, message: impl Into<String>) -> Finish<'a> {
        self.finish(How::Done(Evidence::Commit(String::new())), message.into())
    }

    /// It did not work; it is tried again until its attempts are used up.
    pub fn failed(self, message: impl Into<String>) -> Result<finish::Outcome, Error> {
        self.finish(How::Failed, message.into()).commit()
    }

    /// Gives it back as it is.
    pub fn release(self, message: impl Into<String>) -> Result<finish::Outcome, Error> {
        self.finish(How::Release, message.into()).commit()
    }

    /// Gives it back until a person has answered.
    pub fn ask(self, question: impl Into<String>) -> Result<finish::Outcome, Error> {
        self.finish(How::Waiting(WaitFor::Human), question.into()).commit()
    }
}

/// A job about to be finished.
pub struct Finish<'a> {
    toft: &'a Toft,
    agent: String,
    request: finish::Request,
}

impl Finish<'_> {
    /// The commit that shows it.
    #[must_use]
    pub fn evidence(mut self, commit: impl Into<String>) -> Self {
        self.request.how = How::Done(Evidence::Commit(commit.into()));
        self
    }

    /// Why nothing had to change.
    #[must_use]
    pub fn no_change(mut self, reason: impl Into<String>) -> Self {
        self.request.how = How::Done(Evidence::NoChange(reason.into()));
        self
    }

    /// What it cost.
    #[must_use]
    pub fn cost(mut self, cost: f64) -> Self {
        self.request.cost = Some(cost);
        self
    }

    /// Makes it so.
    pub fn commit(self) -> Result<finish::Outcome, Error> {
        self.toft.finish(&self.agent, None, self.request)
    }
}
