//! Results that wait for a checkout of their target.
//!
//! A branch that is checked out must not move under its files. What lands in it waits under `refs/toft/landed/` until
//! the checkout can take it; later work lands on top of that. If the branch moves on meanwhile, both are merged and
//! checked before anything else lands.

use std::collections::BTreeSet;

use toft_core::verbs::land::List;
use toft_session::{error::Error, land::UpdateRule};
use toft_vcs::landing::{Merged, TargetCheckout, landed_ref};

use crate::{
    Lander,
    check::{CheckOutcome, CheckRequest},
    report::{PendingUpdate, UpdatedCheckout},
    repository::{CandidateSpec, MergeRepository as _},
    run::{LandRun, RoundOutcome},
    target::TargetTip,
};

/// The command that updates a checkout, when it is called there.
const UPDATE_COMMAND: &str = "toft land";

/// How many past landings name the targets that may have a pending result.
const MAX_RECENT_LANDINGS: usize = 20;

impl Lander<'_> {
    /// Lists targets with a pending result that are not in `done`.
    pub(crate) fn pending_targets(&self, done: &BTreeSet<String>) -> Result<Vec<String>, Error> {
        let session = self.work.session();
        let recent = List { scope: session.scope(), past: MAX_RECENT_LANDINGS, ..List::default() };
        let recent = session.perform(recent)?.into_iter();
        let targets: BTreeSet<String> = recent.map(|entry| entry.landing.offer.target).collect();
        let mut pending = Vec::new();
        for target in targets.into_iter().filter(|target| !done.contains(target)) {
            // Nothing waits for a branch that was deleted.
            if self.repository.has_waiting(&target)? && self.repository.commit(&target)?.is_some() {
                pending.push(target);
            }
        }
        Ok(pending)
    }

    /// Updates the checkout of a target to its pending result, where the rules allow it and no file is in the way.
    pub(crate) fn update_checkout(&self, target: &str, run: &mut LandRun<'_>) -> Result<(), Error> {
        let tip = self.require_tip(target)?;
        if tip.base == tip.own {
            // Nothing to take; what the branch contains already is forgotten.
            return Ok(self.repository.forget_waiting_of(target, &tip.own)?);
        }
        let checkouts = self.repository.checkouts(target)?;
        let Some(checkout) = checkouts.first() else {
            // Whoever had the branch checked out has left it.
            return self.move_free_branch(target, &tip.base, &tip.own, run).map(drop);
        };
        let obstacle = match checkout {
            TargetCheckout { rebasing: true, .. } => Some(format!("{target} is being rebased there")),
            _ if !self.may_update(checkout) => Some(checked_out_there(target)),
            _ => self.repository.move_checkout(checkout, &tip.base)?,
        };
        if let Some(why) = obstacle {
            run.summary.pending_updates.push(pending_update(&tip, checkout, why));
            return Ok(());
        }
        self.repository.forget_waiting(target)?;
        let (target, dir) = (target.to_owned(), checkout.dir.display().to_string());
        run.summary.updated_checkouts.push(UpdatedCheckout { target, dir, commit: tip.base });
        Ok(())
    }

    /// Returns what waits for the checkout of a target. Changes nothing.
    pub(crate) fn find_pending_update(&self, target: &str) -> Result<Option<PendingUpdate>, Error> {
        let Some(tip) = self.find_tip(target)? else { return Ok(None) };
        if self.repository.diverged(target)?.is_some() {
            return Ok(Some(PendingUpdate {
                target: target.to_owned(),
                dir: self.checkout.root.display().to_string(),
                why: format!("{target} moved on since"),
                command: UPDATE_COMMAND.to_owned(),
            }));
        }
        if tip.base == tip.own {
            return Ok(None);
        }
        let checkouts = self.repository.checkouts(target)?;
        Ok(checkouts.first().map(|checkout| pending_update(&tip, checkout, checked_out_there(target))))
    }

    /// Merges a target with its pending result until one contains the other.
    pub(crate) fn merge_all_diverged(&self, target: &str, run: &mut LandRun<'_>) -> Result<(), Error> {
        while let Some(pending) = self.repository.diverged(target)? {
            let own = self.require_tip(target)?.own;
            if self.merge_diverged(target, &own, &pending, run)? == RoundOutcome::Settled {
                break;
            }
        }
        Ok(())
    }

    /// Merges a target that moved on with the result that waited for it. Only a merge that passes the check replaces
    /// the pending result.
    pub(crate) fn merge_diverged(
        &self,
        target: &str,
        own: &str,
        pending: &str,
        run: &mut LandRun<'_>,
    ) -> Result<RoundOutcome, Error> {
        let spec = CandidateSpec::merge(format!("Merge what landed in {target}"));
        let candidate = match self.repository.build_candidate(own, pending, &spec)? {
            Merged::Clean(candidate) => candidate,
            Merged::Nothing => return Ok(RoundOutcome::Settled),
            Merged::Conflict(files) => {
                let pending_ref = landed_ref(target);
                run.summary.red = Some(format!(
                    "{target} moved on, and conflicts with what waits in {pending_ref} in {}: \
                     merge it with git merge {pending_ref}",
                    files.join(", ")
                ));
                return Ok(RoundOutcome::Settled);
            }
        };
        // Each side passed on its own; that says nothing of both together.
        if !self.rules.check.commands.is_empty() {
            let request = CheckRequest::of_target(&candidate);
            if let CheckOutcome::Failed(why) = self.check_candidate(&request, true, run)? {
                run.summary.red = Some(why);
                return Ok(RoundOutcome::Settled);
            }
        }
        self.repository.move_waiting(target, &candidate.commit, Some(pending))?;
        Ok(RoundOutcome::Changed)
    }

    fn may_update(&self, checkout: &TargetCheckout) -> bool {
        match self.rules.update {
            UpdateRule::Clean => true,
            UpdateRule::Ask => self.called_here && checkout.dir == self.checkout.root,
        }
    }
}

fn pending_update(tip: &TargetTip, checkout: &TargetCheckout, why: String) -> PendingUpdate {
    PendingUpdate {
        target: tip.target.clone(),
        dir: checkout.dir.display().to_string(),
        why,
        command: UPDATE_COMMAND.to_owned(),
    }
}

fn checked_out_there(target: &str) -> String {
    format!("{target} is checked out there")
}
