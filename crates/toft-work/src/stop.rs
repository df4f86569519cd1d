//! Stops one agent: orders its runner to end it, and decides about its task.

use std::time::Duration;

use toft_core::{
    flow::Attempt,
    refusal::Refusal,
    verbs::{facts, finish, stop},
};
use toft_session::error::Error;

use crate::Work;

impl Work<'_> {
    /// Stops the work on a task: its runner is ordered to end the agent; without a runner, the lease is revoked.
    pub fn stop(&self, actor: &str, mut request: stop::Request) -> Result<stop::Outcome, Error> {
        let issue = self.issue_named(&request.id)?;
        let issue_named = issue.is_some();
        request.id = issue.unwrap_or(request.id);
        let id = request.id.clone();
        self.act(actor, None, request).map_err(|error| match error {
            Error::Refused(Refusal::NotFound { .. }) if issue_named => {
                let wanted = "no agent holds it, so there is nothing to stop".to_owned();
                Refusal::WrongState { id, state: "not in progress".into(), wanted }.into()
            }
            error => error,
        })
    }

    /// Waits until a lease that a runner was ordered to end has ended; none if it takes longer than `patience`.
    pub fn wait_until_stopped(&self, told: &stop::Outcome, patience: Duration) -> Result<Option<Attempt>, Error> {
        self.wait_for(patience, || {
            let attempts = self.perform(facts::TaskAttempts { task: told.task.clone() })?;
            Ok(attempts.into_iter().find(|attempt| attempt.fence() == told.fence && attempt.ended.is_some()))
        })
    }

    /// Ends a lease after its agent was ended because of a stop order.
    pub fn obey_stop(&self, actor: &str, request: stop::Obey) -> Result<finish::Outcome, Error> {
        let outcome = self.act(actor, None, request)?;
        self.tidy_after(actor, &outcome.task);
        Ok(outcome)
    }
}
