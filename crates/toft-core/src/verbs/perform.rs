//! How a verb is run: one transaction, tried again after a conflict with another writer.
//!
//! Everything here works on an [`AnyRun`], which hides the types of its verb: it is compiled once, not for each verb.

use serde_json::Value;

use super::{Caller, Operation, Verb, VerbContext, clock, sweep};
use crate::{
    change::{Receipt, Write},
    json,
    refusal::{Refusal, VerbError, VerbResult},
    store::{Access, Prefetch, Store, StoreError},
    token::Token,
};

/// A verb that is being run, and its outcome when it has one.
pub struct VerbRun<V: Verb> {
    verb: V,
    outcome: Option<V::Outcome>,
}

impl<V: Verb> VerbRun<V> {
    /// A run that has not begun.
    pub fn new(verb: V) -> Self {
        Self { verb, outcome: None }
    }

    /// Returns the outcome. A verb that ran without an error has one.
    pub fn into_outcome(self) -> VerbResult<V::Outcome> {
        let missing = || StoreError::Failed { doing: format!("run {}", V::NAME), cause: "no outcome".into() };
        Ok(self.outcome.ok_or_else(missing)?)
    }
}

/// A [`VerbRun`] of any verb.
pub trait AnyRun {
    /// The verb's name.
    fn name(&self) -> &'static str;
    /// Whether the verb writes.
    fn access(&self) -> Access;
    /// Refuses what a token does not cover.
    fn check_token(&self, token: &Token) -> Result<(), Refusal>;
    /// Its first queries.
    fn prefetch<'a>(&'a self, actor: &'a str) -> Prefetch<'a>;
    /// Runs the verb inside a transaction, and keeps its outcome. May be called again after a conflict.
    fn attempt(&mut self, work: &mut VerbContext<'_>) -> VerbResult<()>;
    /// Writes the request as JSON.
    fn request(&self) -> serde_json::Result<Value>;
    /// Writes the outcome as JSON; null before there is one.
    fn outcome(&self) -> serde_json::Result<Value>;
    /// Takes an outcome that was computed elsewhere or before.
    fn set_outcome(&mut self, outcome: &Value) -> serde_json::Result<()>;
}

impl<V: Verb> AnyRun for VerbRun<V> {
    fn name(&self) -> &'static str {
        V::NAME
    }

    fn access(&self) -> Access {
        V::ACCESS
    }

    fn check_token(&self, token: &Token) -> Result<(), Refusal> {
        V::MAY.check(V::NAME, token, &self.verb)
    }

    fn prefetch<'a>(&'a self, actor: &'a str) -> Prefetch<'a> {
        self.verb.prefetch(actor)
    }

    fn attempt(&mut self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        self.outcome = Some(self.verb.clone().run(work)?);
        Ok(())
    }

    fn request(&self) -> serde_json::Result<Value> {
        json::to_value(&self.verb)
    }

    fn outcome(&self) -> serde_json::Result<Value> {
        json::to_value(&self.outcome)
    }

    fn set_outcome(&mut self, outcome: &Value) -> serde_json::Result<()> {
        self.outcome = Some(json::from_value(outcome)?);
        Ok(())
    }
}

/// Runs one verb in one transaction, and retries after conflicts with other writers; the store guarantees that the
/// retries end.
pub fn perform<V: Verb>(store: &dyn Store, caller: &mut Caller<'_>, verb: V) -> VerbResult<V::Outcome> {
    let mut run = VerbRun::new(verb);
    perform_run(store, caller, &mut run)?;
    run.into_outcome()
}

/// Does the same for a verb of any type; the outcome is in the run. A caller with a token gets no further than it allows.
pub fn perform_run(store: &dyn Store, caller: &mut Caller<'_>, run: &mut dyn AnyRun) -> VerbResult<()> {
    if let Some(token) = caller.token {
        run.check_token(token)?;
    }
    perform_allowed(store, caller, run)
}

fn perform_allowed(store: &dyn Store, caller: &mut Caller<'_>, run: &mut dyn AnyRun) -> VerbResult<()> {
    let op = caller.op.take();
    loop {
        match attempt(store, caller, op.clone(), run) {
            Err(VerbError::Failed(StoreError::Conflict)) => {}
            done => return done,
        }
    }
}

/// Runs the verb once. A refusal rolls back the sweep of lost leases, so the sweep is run again alone and committed.
fn attempt(store: &dyn Store, caller: &mut Caller<'_>, op: Option<Operation>, run: &mut dyn AnyRun) -> VerbResult<()> {
    let mut tx = store.begin(run.access())?;
    tx.prefetch(run.prefetch(caller.actor))?;
    if let Some(op) = &op
        && let Some(receipt) = tx.receipt(&op.id)?
    {
        return repeat(receipt, caller.actor, op, run);
    }
    let now = tx.now()?;
    let mut work = VerbContext {
        tx: tx.as_mut(),
        actor: caller.actor,
        place: caller.place.clone(),
        ids: caller.ids,
        processes: caller.processes,
        policy: caller.policy,
        op: op.as_ref().map(|op| op.id.clone()),
        holds: caller.holds,
        known_role: caller.role,
        token: caller.token,
        parts: 0,
        swept: 0,
        me: None,
        now,
    };
    if run.access() == Access::Write {
        clock::mend_if_stepped_back(&mut work)?;
    }
    match run.attempt(&mut work) {
        Err(VerbError::Refused(refusal)) if work.swept > 0 => {
            tx.validate_reads()?;
            drop(tx);
            // Leases that time has ended are ended with any caller's rights.
            perform_allowed(store, caller, &mut VerbRun::new(sweep::Request {}))?;
            return Err(refusal.into());
        }
        Err(VerbError::Refused(refusal)) => {
            tx.validate_reads()?;
            return Err(refusal.into());
        }
        result => result?,
    }
    if run.access() == Access::Write {
        if let Some(op) = op {
            let outcome = run.outcome().map_err(|error| unwritable(&error))?;
            let actor = work.actor.to_owned();
            let Operation { id: op, request } = op;
            let receipt = Receipt { op, actor, verb: run.name().to_owned(), request, outcome, at: work.now.wall };
            work.tx.write_derived(&[Write::Receipt(receipt)])?;
        }
        tx.commit()?;
    }
    Ok(())
}

/// Answers a repeated operation as before.
fn repeat(receipt: Receipt, actor: &str, op: &Operation, run: &mut dyn AnyRun) -> VerbResult<()> {
    let other_request = !receipt.request.is_empty() && receipt.request != op.request;
    if receipt.verb != run.name() || receipt.actor != actor || other_request {
        let Receipt { op, verb, actor, .. } = receipt;
        return Err(Refusal::OpReused { op: op.to_string(), verb, actor }.into());
    }
    run.set_outcome(&receipt.outcome).map_err(|error| {
        StoreError::Unreadable { table: "receipts".into(), id: receipt.op.to_string(), cause: error.to_string() }.into()
    })
}

pub(super) fn unwritable(error: &serde_json::Error) -> StoreError {
    StoreError::Failed { doing: "write an outcome".into(), cause: error.to_string() }
}
