//! Where a target is, and moving it.

use toft_core::{landing::Landing, verbs::land::ListedLanding};
use toft_session::error::Error;
use toft_vcs::workspace::WorkspaceError;

use crate::{Lander, repository::MergeRepository as _, run::LandRun, stack::StackedCandidate};

/// Where a target is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetTip {
    pub(crate) target: String,
    /// The commit on which the next landing is built: `own`, or the landed result that waits for a checkout.
    pub(crate) base: String,
    /// The commit that the branch itself is at.
    pub(crate) own: String,
}

impl Lander<'_> {
    pub(crate) fn find_tip(&self, target: &str) -> Result<Option<TargetTip>, Error> {
        let found = self.repository.newest(target)?;
        Ok(found.map(|(base, own)| TargetTip { target: target.to_owned(), base, own }))
    }

    /// Like [`find_tip`](Self::find_tip); a target without a commit is an error.
    pub(crate) fn require_tip(&self, target: &str) -> Result<TargetTip, Error> {
        let missing = || WorkspaceError::NoBase { text: target.to_owned() };
        Ok(self.find_tip(target)?.ok_or_else(missing)?)
    }

    /// Moves the target to the end of a stack and records its work as landed. If the target or the queue moved
    /// meanwhile, nothing happens: the next round builds the stack again.
    pub(crate) fn land_stack(
        &self,
        tip: &TargetTip,
        stack: &[StackedCandidate],
        checked: bool,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let Some(last) = stack.last() else { return Ok(()) };
        // A check takes minutes: what was returned or withdrawn while it ran must not land.
        let queue = self.work.landings(&[], 0)?;
        if !stack.iter().all(|stacked| is_still_in(&queue, &stacked.landing)) {
            return Ok(());
        }
        if !self.advance_target(tip, &last.candidate.commit, run)? {
            return Ok(());
        }
        // The check ran on the tree of the last candidate only.
        self.record_stack(stack, &last.candidate.tree, checked, run)
    }

    /// Returns whether a piece of work is queued as it was when it was read, and nobody has to approve it.
    pub(crate) fn is_still_queued(&self, landing: &Landing) -> Result<bool, Error> {
        Ok(is_still_in(&self.work.landings(&[], 0)?, landing))
    }

    /// Moves the branch, or, while it is checked out, the result that waits for that checkout. Returns whether both
    /// were still where `tip` says.
    fn advance_target(&self, tip: &TargetTip, to: &str, run: &mut LandRun<'_>) -> Result<bool, Error> {
        let TargetTip { target, base, own } = tip;
        if self.repository.checkouts(target)?.is_empty() {
            return self.move_free_branch(target, to, own, run);
        }
        let pending = self.repository.waiting(target)?;
        // With nothing pending, the branch itself must still be where the stack was built.
        if base == own && self.repository.commit(target)?.as_ref() != Some(own) {
            return Ok(false);
        }
        Ok(self.repository.move_waiting(target, to, pending.as_deref())?)
    }

    /// Moves a branch that is checked out nowhere, here or at its remote. A result that waited for it is in it now.
    pub(crate) fn move_free_branch(
        &self,
        target: &str,
        to: &str,
        from: &str,
        run: &mut LandRun<'_>,
    ) -> Result<bool, Error> {
        if self.repository.remote_branch(target).is_some() {
            // The remote refuses unless its branch is still at `from`.
            return Ok(self.repository.push(target, to, from)?);
        }
        let moved = self.repository.move_branch(target, to, from)?;
        if moved {
            run.note_failure(self.repository.forget_waiting(target));
            // Jujutsu does not see by itself that a ref of git moved.
            run.note_failure(self.repository.import());
        }
        Ok(moved)
    }

    /// Returns whether the check is known to fail on the newest state of a target. Runs nothing.
    pub(crate) fn is_known_red(&self, target: &str) -> Result<bool, Error> {
        let Some(tip) = self.find_tip(target)? else { return Ok(false) };
        let tree = self.repository.tree_of(&tip.base)?;
        Ok(self.verdict_of(&tree)?.is_some_and(|verdict| verdict.failed()))
    }
}

fn is_still_in(queue: &[ListedLanding], landing: &Landing) -> bool {
    queue.iter().any(|entry| entry.landing.is_still(landing))
}
