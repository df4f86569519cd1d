//! Issues and the workflows that are on them: a claim starts one, its end closes the issue.

use toft_core::{
    flow::{Source, WorkflowStatus},
    issue::edit,
    refusal::Refusal,
    verbs::{
        claim,
        issue::{Ended, Told, Untold},
    },
};

use super::Plan;
use crate::error::Error;

/// How many issues a claim is offered at least; some may be taken by somebody else meanwhile.
const OFFERED: usize = 16;

impl Plan<'_> {
    /// Completes a claim's request with what the plan offers.
    pub(crate) fn offer_to(&self, request: &mut claim::Request) -> Result<(), Error> {
        match &request.id {
            None => request.offers = self.offers(OFFERED.max(request.count * 2))?,
            Some(text) => match self.offer(text) {
                Ok(offer) => {
                    request.id = Some(offer.issue.id.clone());
                    request.offers = vec![offer];
                }
                Err(Error::Refused(Refusal::NotFound { .. })) => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// Lets the ledger say who is on what was claimed.
    pub(crate) fn started(&self, actor: &str, outcome: &claim::Outcome) -> Result<(), Error> {
        for id in outcome.claims.iter().filter_map(|claimed| claimed.issue.as_deref()) {
            self.change(id, "issue.started", |_, issue| Ok(edit::start(issue, actor)))?;
        }
        Ok(())
    }

    /// Tells ledgers how workflows on their issues ended. What was not told, for whatever reason, is told the next time.
    pub(crate) fn tell(&self) -> Result<(), Error> {
        if self.unwritten() {
            return Ok(());
        }
        for Ended { workflow, outcome } in self.toft.perform(Untold)? {
            let Source::Issue { id, .. } = &workflow.source else { continue };
            let now = self.now()?;
            let told = self.change(id, "issue.told", |_, issue| match workflow.status {
                WorkflowStatus::Completed => {
                    let summary = outcome.as_ref().map(|outcome| outcome.summary.clone()).unwrap_or_default();
                    let outcome = serde_json::to_value(&outcome).ok().filter(|outcome| !outcome.is_null());
                    let agent = issue.assignee.clone().unwrap_or_default();
                    Ok(edit::close(issue, &summary, outcome, &edit::By { actor: &agent, now, word: "" })?)
                }
                _ => Ok(edit::reopen(issue)),
            });
            match told {
                // An issue that is gone has nothing to be told.
                Ok(_) | Err(Error::Refused(Refusal::NotFound { .. })) => {}
                Err(error) => return Err(error),
            }
            self.toft.perform(Told { workflow: workflow.id.to_string() })?;
        }
        Ok(())
    }
}
