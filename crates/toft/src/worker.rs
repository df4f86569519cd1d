//! Workers: an agent that claims jobs and finishes them, with its lease tied to this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use toft_core::{
    agent::{Agent, Role},
    checkpoint::Checkpoint,
    flow::{Evidence, Task},
    keeper::Keeper,
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
use toft_session::{
    error::Error,
    keep::{Keeping, KeptHold, clock},
};
use toft_work::workspaces::{Given, Wanted};

use crate::Toft;

/// An agent that is about to register.
pub struct AgentBuilder<'a> {
    toft: &'a Toft,
    request: Register,
    name: String,
}

impl<'a> AgentBuilder<'a> {
    pub(crate) fn new(toft: &'a Toft, name: String) -> Self {
        Self { toft, request: Register { name: Some(name.clone()), ..Register::default() }, name }
    }

    /// Its role.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.request.role = Some(role);
        self
    }

    /// A capability; tasks may require it.
    #[must_use]
    pub fn can(mut self, tag: impl Into<String>) -> Self {
        self.request.capabilities.push(tag.into());
        self
    }

    /// Registers it.
    pub fn register(self) -> Result<Worker<'a>, Error> {
        let agent = self.toft.perform_as(&self.name, None, self.request)?;
        Ok(Worker { toft: self.toft, agent })
    }
}

/// Selects the task to claim.
#[derive(Clone, Debug, Default)]
pub struct ClaimQuery {
    id: Option<String>,
    labels: Vec<String>,
    scope: Option<Scope>,
    ttl: Option<Duration>,
    wait: Option<Duration>,
}

impl ClaimQuery {
    /// The best that is ready in this repository.
    #[must_use]
    pub fn ready() -> Self {
        Self::default()
    }

    /// A given task, by id or prefix.
    pub fn task(id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..Self::default() }
    }

    /// Only with this label.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.labels.push(label.into());
        self
    }

    /// From another scope than this repository.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Time to live of the lease, if not the default.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Wait this long until a task is ready.
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
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Claims one job; none if nothing is ready.
    pub fn claim(&self, query: ClaimQuery) -> Result<Option<Job<'a>>, Error> {
        Ok(self.claim_many(query, 1)?.pop())
    }

    /// Claims up to `count` jobs in one transaction.
    pub fn claim_many(&self, query: ClaimQuery, count: usize) -> Result<Vec<Job<'a>>, Error> {
        let request = claim::Request {
            offers: Vec::new(),
            id: query.id,
            count,
            without: Vec::new(),
            labels: query.labels,
            scope: query.scope.unwrap_or_else(|| self.toft.scope()),
            ttl: query.ttl,
            cap: None,
            take_over: false,
            holder: self.toft.machine().this_process(),
        };
        let (sent, ttl) = (clock(), query.ttl.unwrap_or(self.toft.located().policy.ttl));
        let claimed = match query.wait {
            Some(patience) => self.toft.work().claim_waiting(&self.agent.name, None, &request, patience),
            None => self.toft.work().claim(self.toft.plan()?.as_ref(), &self.agent.name, None, request),
        };
        match claimed {
            Ok(outcome) => {
                let jobs = outcome.claims.into_iter().map(|claimed| self.job(claimed, sent, ttl));
                // Waiting for work does not count as holding it.
                let waited = clock().saturating_sub(sent) > ttl.as_millis() as u64 / 4;
                if waited { jobs.map(Job::renewed).collect() } else { Ok(jobs.collect()) }
            }
            Err(Error::Refused(Refusal::NothingReady { .. })) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn job(&self, claimed: Claimed, sent: u64, ttl: Duration) -> Job<'a> {
        Job { toft: self.toft, agent: self.agent.name.clone(), claimed, sent, ttl }
    }
}

/// A task that this worker holds. Every write names its fence, so a write under a lost lease changes nothing.
pub struct Job<'a> {
    toft: &'a Toft,
    agent: String,
    claimed: Claimed,
    /// When the claim was sent, on this machine's clock.
    sent: u64,
    ttl: Duration,
}

/// A lease that is renewed in the background until this is dropped.
///
/// Whoever cannot renew must stop before the lease can be given to another. [`Kept::must_stop`] turns true in time for
/// work that ends within the grace: a little before `ttl` after the last renewal that the store acknowledged, counted
/// from when that was sent, on a clock that goes on through a laptop's sleep. It never turns false again.
#[non_exhaustive]
pub struct Kept {
    keeping: Keeping,
    stop: Arc<AtomicBool>,
}

impl Kept {
    /// Whether to stop now: the lease may soon be another's, or is.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The same, to be shared with whatever does the work.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Why to stop.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.must_stop().then(|| self.keeping.why())
    }
}

impl<'a> Job<'a> {
    /// What is to be done.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.claimed.task
    }

    /// The hold on it.
    #[must_use]
    pub fn hold(&self) -> &Hold {
        &self.claimed.lease
    }

    /// Where an earlier holder got to.
    #[must_use]
    pub fn resume(&self) -> Option<&Checkpoint> {
        self.claimed.resume.as_ref()
    }

    /// A workspace for it. If it cannot be created, the task is released and the lease has ended.
    pub fn workspace(&self) -> Result<Given, Error> {
        self.toft.work().workspace_for(&self.agent, &self.claimed, Wanted { rests: true, ..Wanted::default() }, |_| {})
    }

    /// Renews the lease.
    pub fn renew(&self) -> Result<Timestamp, Error> {
        let holds = vec![(self.task().id.clone(), self.hold().fence())];
        let outcome = self.toft.perform_as(&self.agent, None, renew::Request { holds, ttl: None })?;
        Ok(outcome.renewed.first().map(|(_, until)| *until).unwrap_or_default())
    }

    /// Renews the lease in the background, over a connection of its own, for work that ends within `grace` when it is
    /// asked to.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), toft::Error> {
    /// # let toft = toft::Toft::open(".")?;
    /// let me = toft.agent("builder-7").register()?;
    /// if let Some(job) = me.claim(toft::ClaimQuery::ready())? {
    ///     let kept = job.keep(std::time::Duration::from_secs(5));
    ///     for part in 1..=100 {
    ///         if kept.must_stop() {
    ///             return Ok(()); // another may have the task; what is not saved is lost
    ///         }
    ///         job.save(format!("part {part}"))?;
    ///     }
    ///     job.done("all of it").no_change("a yard is not under version control").commit()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keep(&self, grace: Duration) -> Kept {
        let stop = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&stop);
        let held = KeptHold { actor: self.agent.clone(), task: self.task().id.clone(), fence: self.hold().fence() };
        let keeper = Keeper::new(self.ttl, grace, self.sent);
        let keeping = Keeping::start(self.toft.located(), held, keeper, move |_| flag.store(true, Ordering::SeqCst));
        Kept { keeping, stop }
    }

    /// The same job, with its lease renewed now.
    fn renewed(mut self) -> Result<Self, Error> {
        self.sent = clock();
        self.renew()?;
        Ok(self)
    }

    /// Saves a checkpoint.
    pub fn save(&self, message: impl Into<String>) -> Result<Checkpoint, Error> {
        let saved = self.toft.perform_as(
            &self.agent,
            None,
            save::Request { message: Some(message.into()), ..self.saving() },
        )?;
        saved
            .checkpoint
            .ok_or_else(|| Refusal::NotFound { what: "checkpoint".into(), text: self.task().id.to_string() }.into())
    }

    /// Stores a value under a key; storing the same value again changes nothing.
    pub fn put(&self, key: impl Into<String>, value: Value) -> Result<bool, Error> {
        let request = save::Request { state: Some((key.into(), value)), ..self.saving() };
        Ok(self.toft.perform_as(&self.agent, None, request)?.changed)
    }

    /// The value of a key, from any holder.
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

    /// Finishes it as done; add evidence before committing.
    pub fn done(self, message: impl Into<String>) -> Finish<'a> {
        self.finish(How::Done(Evidence::Commit(String::new())), message.into())
    }

    /// Finishes it as failed; it is retried until all attempts are used.
    pub fn failed(self, message: impl Into<String>) -> Result<finish::Outcome, Error> {
        self.finish(How::Failed, message.into()).commit()
    }

    /// Releases it without a result.
    pub fn release(self, message: impl Into<String>) -> Result<finish::Outcome, Error> {
        self.finish(How::Release, message.into()).commit()
    }

    /// Releases it until a person has answered.
    pub fn ask(self, question: impl Into<String>) -> Result<finish::Outcome, Error> {
        self.finish(How::Waiting(WaitFor::Human), question.into()).commit()
    }
}

/// A job that is about to be finished.
pub struct Finish<'a> {
    toft: &'a Toft,
    agent: String,
    request: finish::Request,
}

impl Finish<'_> {
    /// The commit that is the evidence.
    #[must_use]
    pub fn evidence(mut self, commit: impl Into<String>) -> Self {
        self.request.how = How::Done(Evidence::Commit(commit.into()));
        self
    }

    /// The reason why no change was needed.
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

    /// Ends the lease.
    pub fn commit(self) -> Result<finish::Outcome, Error> {
        self.toft.work().finish(&self.agent, None, self.request)
    }
}
