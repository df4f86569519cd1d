//! How a slot gets its next task.

use std::time::Duration;

use toft_core::{
    refusal::Refusal,
    verbs::{
        Operation,
        claim::{self, Claimed},
        renew,
    },
};
use toft_session::{error::Error, keep::clock, session::random_ids};
use toft_work::work::operation;

use super::{super::capacity::FreeCapacity, PATIENCE, Slot};

/// A claim that was sent.
pub(super) struct SentClaim {
    op: Operation,
    request: claim::Request,
    sent: u64,
}

/// A claimed task, and since when its lease is certainly valid.
pub(super) struct TakenTask {
    pub(super) claimed: Claimed,
    pub(super) since: u64,
}

impl Slot {
    /// How long it waits for work in one repository.
    pub(super) fn patience(&self) -> Duration {
        PATIENCE / u32::try_from(self.repositories.len()).unwrap_or(u32::MAX)
    }

    /// Claims a task, if one is ready soon. A claim whose answer was lost is repeated with the same operation id until
    /// it is answered: it may have been committed.
    pub(super) fn take(&self) -> Result<Option<TakenTask>, Error> {
        let lost = self.repository().asked.take();
        let again = lost.is_some();
        let limited = !self.rules.capacity.is_empty();
        if limited && !again {
            let free = FreeCapacity::acquire(&self.rules.capacity)?;
            let agent = &self.rules.agent;
            if self.rules.capacity.contains_key(agent) && !free.has(agent) {
                self.sleep(self.patience());
                return Ok(None);
            }
            self.capacity.replace(free);
        }
        let asked = lost.unwrap_or_else(|| {
            let request = claim::Request {
                labels: self.rules.labels.clone(),
                without: self.capacity.borrow().without.clone(),
                scope: self.session().scope(),
                ttl: Some(self.rules.ttl),
                holder: self.session().machine().this_process(),
                ..claim::Request::default()
            };
            let op = operation(&format!("run_{}", random_ids().word()), &format!("{request:?}"));
            SentClaim { op, request, sent: clock() }
        });
        // Nobody waits with units of a capacity in hand.
        let patience = if limited { Duration::ZERO } else { self.patience() };
        let found = self.claim(asked, again, patience)?;
        if limited && self.repository().asked.borrow().is_none() {
            let labels = found.as_ref().map(|taken| taken.claimed.task.spec.labels.as_slice());
            match labels {
                Some(labels) => self.capacity.borrow_mut().keep_for(labels, &self.rules.agent),
                None => {
                    self.capacity.take();
                    self.sleep(self.patience());
                }
            }
        }
        Ok(found)
    }

    /// Sends a claim, `again` if its answer was lost before.
    fn claim(&self, asked: SentClaim, again: bool, patience: Duration) -> Result<Option<TakenTask>, Error> {
        match self.work().claim_waiting(&self.name, Some(&asked.op), &asked.request, patience) {
            Ok(outcome) => match outcome.claims.into_iter().next() {
                // Waiting for work does not count as holding it.
                Some(claimed) if again || clock() - asked.sent > self.rules.ttl.as_millis() as u64 / 4 => {
                    self.still_held(claimed)
                }
                claimed => Ok(claimed.map(|claimed| TakenTask { claimed, since: asked.sent })),
            },
            Err(Error::Refused(Refusal::NothingReady { .. })) => Ok(None),
            Err(Error::Refused(Refusal::AgentPaused { .. })) => {
                self.say_paused();
                // Nothing was waited for.
                self.sleep(self.patience());
                Ok(None)
            }
            Err(Error::Refused(Refusal::OpReused { .. })) => {
                // The claim committed, but its outcome is unavailable; release what it claimed.
                self.let_go_of_others()?;
                Ok(None)
            }
            Err(Error::Store(error)) => {
                *self.repository().asked.borrow_mut() = Some(asked);
                Err(error.into())
            }
            Err(error) => Err(error),
        }
    }

    /// The task of an earlier claim, if its lease is still valid: the store renews it now.
    fn still_held(&self, claimed: Claimed) -> Result<Option<TakenTask>, Error> {
        let (since, holds) = (clock(), vec![(claimed.task.id.clone(), claimed.lease.fence())]);
        match self.session().perform_as(&self.name, None, renew::Request { holds, ttl: None }) {
            Ok(_) => Ok(Some(TakenTask { claimed, since })),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
