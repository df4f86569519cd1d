//! Stopping one agent: what its runner is told, and what becomes of its task.

use toft_core::verbs::{finish, stop};

use crate::{error::Error, session::Toft};

impl Toft {
    /// Stops the work on a task: its runner is told to end the agent, or the hold is revoked where there is none.
    pub fn stop(&self, actor: &str, request: stop::Request) -> Result<stop::Outcome, Error> {
        let outcome = self.perform_as(actor, None, request)?;
        if let (Some(ended), Some(plan)) = (&outcome.ended, self.plan()?) {
            plan.given_back(ended)?;
        }
        Ok(outcome)
    }

    /// Ends a hold whose agent was ended because of a stop order.
    pub(crate) fn obey_stop(&self, actor: &str, request: stop::Obey) -> Result<finish::Outcome, Error> {
        let outcome = self.perform_as(actor, None, request)?;
        if let Some(plan) = self.plan()? {
            plan.given_back(&outcome)?;
        }
        self.let_go_of_workspace(actor, &outcome.task)?;
        Ok(outcome)
    }
}
