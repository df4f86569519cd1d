//! Other repositories of a store of which this machine has clones: claims that are worked on there, and updates of
//! their ledgers.

use toft_core::{verbs::claim::Claimed, verbs::facts};
use toft_plan::Plan;
use toft_session::{Error, Session};

use crate::Work;

/// Maximum number of workflows that are read for updates of ledgers elsewhere.
const TOLD_AT_ONCE: usize = 64;

impl Work<'_> {
    /// The repository in which a claimed task is to be worked on: that of the task; or that whose own ledger contains
    /// the issue, if the store knows it.
    pub fn in_repository_of_claim(&self, claimed: &Claimed) -> Result<Option<Session>, Error> {
        if let Some(session) = self.in_repository_of(&claimed.task)? {
            return Ok(Some(session));
        }
        let (Some(issue), Some(plan)) = (&claimed.issue, Plan::open(self.session)?) else { return Ok(None) };
        let Some(found) = plan.known(issue)? else { return Ok(None) };
        let Some(dir) = plan.repository_of(&found.ledger) else { return Ok(None) };
        let other = self.in_directory(&dir, false).ok();
        if other.is_none() {
            let dir = dir.display();
            self.note(format!(
                "{issue} is of the ledger of {dir}, and its workspace of this repository: no store knows both"
            ));
        }
        Ok(other)
    }

    /// Updates ledgers of other repositories of this store with the current state of their issues, if this machine has
    /// clones of them.
    pub(crate) fn tell_ledgers_elsewhere(&self) -> Result<(), Error> {
        let ids = self.perform(facts::PendingRepositories { limit: TOLD_AT_ONCE })?;
        for id in ids.iter().filter(|id| self.located().repository.as_ref() != Some(*id)) {
            let (repository, worktrees) = self.repository(id)?;
            let Some(session) = self.in_clone_of(&repository, &worktrees) else { continue };
            if let Some(plan) = Plan::open(&session)? {
                plan.tell();
            }
            session.take_notes().into_iter().for_each(|note| self.note(format!("{}: {note}", repository.name)));
        }
        Ok(())
    }
}
