//! Issues and the workflows that are on them: a claim starts one, its end closes the issue.

use toft_core::{
    flow::{Source, TaskStatus, WorkflowStatus},
    issue::edit,
    refusal::Refusal,
    verbs::{
        claim, finish, flow,
        issue::{Ended, On, OnIt, Told, Untold},
    },
};

use super::Plan;
use crate::error::Error;

/// How many issues a claim is offered at least; some may be taken by somebody else meanwhile.
const OFFERED: usize = 16;

impl Plan<'_> {
    /// Completes a claim's request with what the plan offers.
    pub(crate) fn offer_to(&self, request: &mut claim::Request) -> Result<(), Error> {
        self.tell()?;
        match &request.id {
            None => request.offers = self.offers(&request.labels, true, OFFERED.max(request.count * 2))?,
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

    /// Lets the ledger say that nobody is on what was given back.
    pub(crate) fn given_back(&self, outcome: &finish::Outcome) -> Result<(), Error> {
        match &outcome.issue {
            Some(id) if outcome.task.state.status == TaskStatus::Pending => {
                self.change(id, "issue.released", |_, issue| Ok(edit::give_back(issue))).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Before an issue is closed or deleted by hand: nobody holds it, and no workflow goes on for it.
    pub(super) fn let_go(&self, id: &str, why: &str) -> Result<(), Error> {
        match self.toft.perform(OnIt { issue: id.to_owned() })? {
            None => Ok(()),
            Some(On { holder: Some(holder), .. }) => Err(Refusal::WrongState {
                id: id.to_owned(),
                state: format!("held by {holder}"),
                wanted: "who holds it finishes it, or gives it back".into(),
            }
            .into()),
            Some(On { workflow, .. }) => {
                let reason = Some(why.to_owned()).filter(|why| !why.is_empty());
                let request = flow::Move { id: workflow.id.to_string(), to: flow::Step::Abandon, reason };
                self.toft.perform(request).map(drop)
            }
        }
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
                WorkflowStatus::Failed => {
                    let reason = outcome.as_ref().map_or("its holders were lost", |outcome| outcome.summary.as_str());
                    // Two that tell it at once say the same.
                    let word = format!("{}-{}", workflow.id, workflow.updated.0);
                    Ok(edit::park(issue, reason, &edit::By { actor: "toft", now, word: &word }))
                }
                _ => Ok(edit::give_back(issue)),
            });
            match told {
                Ok(_) => self.toft.perform(Told { workflow: workflow.id.to_string() })?,
                // Its ledger cannot be seen or written from here; it is told from where it can.
                Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
