//! Moves a target, and with it the checkouts that may be updated.

use std::{collections::BTreeSet, path::Path};

use toft_core::{
    landing::{Landing, LandingState, Verdict},
    verbs::land::{LandedWork, List, ListedLanding, RecordLandings},
};
use toft_session::{error::Error, land::UpdateRule};
use toft_vcs::landing::{CandidateCommit, MergeWay, Merged, TargetCheckout, landed_ref};

use crate::{
    Journal, LandEvent, LandRound, Lander, TakeUp, UpdatedCheckout, check::ToCheck, no_target, stack::Stacked,
};

impl Lander<'_> {
    /// Moves the target to the end of a stack, and records its work as landed. If the target was
    /// moved meanwhile, nothing is recorded: it is built again.
    pub(crate) fn land_all(
        &self,
        target: &str,
        base: &str,
        own: &str,
        stacked: &[Stacked],
        checked: bool,
        journal: &mut Journal<'_>,
    ) -> Result<LandRound, Error> {
        let Some(end) = stacked.last() else { return Ok(LandRound::Over) };
        // What was returned or withdrawn while the check ran does not land.
        let queue = self.work.landings(&[], 0)?;
        if !stacked.iter().all(|stacked| is_among(&queue, &stacked.landing)) {
            return Ok(LandRound::Again);
        }
        if !self.advance(target, base, own, &end.candidate.commit, journal)? {
            return Ok(LandRound::Again);
        }
        let landed = stacked.iter().map(|Stacked { landing, candidate, before, .. }| LandedWork {
            landing: landing.id.clone(),
            tip: landing.offer.tip.clone(),
            commit: candidate.commit.clone(),
            before: before.clone(),
        });
        // The tree that was checked is that of the last.
        self.record(landed.collect(), &end.candidate.tree, checked, journal)?;
        Ok(LandRound::Again)
    }

    /// Whether a piece of work is queued as it was, and nobody has to approve it.
    pub(crate) fn is_still_queued(&self, landing: &Landing) -> Result<bool, Error> {
        Ok(is_among(&self.work.landings(&[], 0)?, landing))
    }

    /// Moves the target from `own`, or the result that waits for it from `base`; returns whether it was still there.
    fn advance(&self, target: &str, base: &str, own: &str, to: &str, journal: &mut Journal<'_>) -> Result<bool, Error> {
        if self.repository.checkouts(target)?.is_empty() {
            return self.move_branch(target, to, own, journal);
        }
        let waiting = self.repository.waiting(target)?;
        if base == own && self.repository.commit(target)?.as_deref() != Some(own) {
            return Ok(false);
        }
        Ok(self.repository.move_waiting(target, to, waiting.as_deref())?)
    }

    /// Moves a target that is checked out nowhere; a result that waited for it is forgotten.
    fn move_branch(&self, target: &str, to: &str, own: &str, journal: &mut Journal<'_>) -> Result<bool, Error> {
        if self.repository.remote_branch(target).is_some() {
            return Ok(self.repository.push(target, to, own)?);
        }
        let moved = self.repository.move_branch(target, to, own)?;
        if moved {
            journal.note_failure(self.repository.forget_waiting(target).map_err(Error::from));
            journal.note_failure(self.repository.import().map_err(Error::from));
        }
        Ok(moved)
    }

    /// Records that a piece of work is in the target, however it got there.
    pub(crate) fn record_landed(
        &self,
        landing: &Landing,
        candidate: &CandidateCommit,
        checked: bool,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        let (landing, tip) = (landing.id.clone(), landing.offer.tip.clone());
        let landed = LandedWork { landing, tip, commit: candidate.commit.clone(), before: String::new() };
        self.record(vec![landed], &candidate.tree, checked, journal)
    }

    pub(crate) fn record(
        &self,
        landed: Vec<LandedWork>,
        tree: &str,
        checked: bool,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        let check = checked.then(|| self.rules.check.digest());
        let recorded = self.work.act(self.actor(), None, RecordLandings { landed, tree: tree.to_owned(), check })?;
        let pins: Vec<String> = recorded.iter().map(Landing::pin).collect();
        journal.note_failure(self.repository.unpin(&pins).map_err(Error::from));
        for landing in recorded {
            journal.say(&LandEvent::Landed { landing: Box::new(landing.clone()) });
            journal.summary.landed.push(landing);
        }
        Ok(())
    }

    /// Lets go of commits whose landing was recorded by a lander that was killed before it did.
    pub(crate) fn unpin_landed(&self) -> Result<(), Error> {
        let mut pins = self.repository.pins()?;
        if pins.is_empty() {
            return Ok(());
        }
        let live: BTreeSet<String> =
            self.work.landings(&[], 0)?.iter().map(|entry| Landing::pin(&entry.landing)).collect();
        pins.retain(|pin| !live.contains(pin));
        let landed = |pin: &String| match self.work.landings(std::slice::from_ref(pin), 0) {
            Ok(found) => Ok(found.iter().any(|entry| entry.landing.state == LandingState::Landed)),
            Err(Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        };
        let mut over = Vec::new();
        for pin in pins {
            if landed(&pin)? {
                over.push(pin);
            }
        }
        Ok(self.repository.unpin(&over)?)
    }

    /// Brings a target and the result that waits for it together, if the target moved on meanwhile.
    pub(crate) fn reunite_all(&self, target: &str, journal: &mut Journal<'_>) -> Result<(), Error> {
        while let Some(waiting) = self.repository.diverged(target)? {
            let own = self.repository.commit(target)?.ok_or_else(|| no_target(target))?;
            if matches!(self.reunite(target, &own, &waiting, journal)?, LandRound::Over) {
                break;
            }
        }
        Ok(())
    }

    /// The target moved on while a result waited for it: both are merged and checked before anything else lands.
    pub(crate) fn reunite(
        &self,
        target: &str,
        own: &str,
        waiting: &str,
        journal: &mut Journal<'_>,
    ) -> Result<LandRound, Error> {
        let subject = format!("Merge what landed in {target}");
        let candidate = match self.repository.candidate(own, waiting, MergeWay::Merge, &subject, &[])? {
            Merged::Clean(candidate) => candidate,
            Merged::Nothing => return Ok(LandRound::Over),
            Merged::Conflict(files) => {
                journal.summary.red = Some(format!(
                    "{target} moved on, and conflicts with what waits in {} in {}: merge it with git merge {}",
                    landed_ref(target),
                    files.join(", "),
                    landed_ref(target)
                ));
                return Ok(LandRound::Over);
            }
        };
        if !self.rules.check.commands.is_empty() {
            let check = ToCheck { candidate: &candidate, landings: Vec::new() };
            let (passed, why) = self.passes(&check, true, journal)?;
            if !passed {
                journal.summary.red = Some(why);
                return Ok(LandRound::Over);
            }
        }
        self.repository.move_waiting(target, &candidate.commit, Some(waiting))?;
        Ok(LandRound::Again)
    }

    /// Targets with a result that waits, besides those that were looked at.
    pub(crate) fn waiting_targets(&self, done: &BTreeSet<String>) -> Result<Vec<String>, Error> {
        let recent = List { scope: self.work.session().scope(), past: 20, ..List::default() };
        let recent = self.work.session().perform(recent)?;
        let targets: BTreeSet<String> = recent.into_iter().map(|entry| entry.landing.offer.target).collect();
        let mut waiting = Vec::new();
        for target in targets.into_iter().filter(|target| !done.contains(target)) {
            // A branch that is gone waits for nothing.
            if self.repository.has_waiting(&target)? && self.repository.commit(&target)?.is_some() {
                waiting.push(target);
            }
        }
        Ok(waiting)
    }

    /// Updates checkouts of the target to the result that waits for it, where that is allowed and nothing is in the way.
    pub(crate) fn take_up(&self, target: &str, journal: &mut Journal<'_>) -> Result<(), Error> {
        let (newest, own) = self.repository.newest(target)?.ok_or_else(|| no_target(target))?;
        if newest == own {
            return Ok(self.repository.forget_waiting_of(target, &own)?);
        }
        let checkouts = self.repository.checkouts(target)?;
        let Some(at) = checkouts.first() else {
            return self.move_branch(target, &newest, &own, journal).map(drop);
        };
        let command = "toft land".to_owned();
        let waits = |why: String| TakeUp {
            target: target.to_owned(),
            dir: at.dir.display().to_string(),
            why,
            command: command.clone(),
        };
        if at.rebasing {
            journal.summary.take_up.push(waits(format!("{target} is being rebased there")));
            return Ok(());
        }
        if !self.may_update(at) {
            journal.summary.take_up.push(waits(format!("{target} is checked out there")));
            return Ok(());
        }
        match self.repository.move_checkout(at, &newest)? {
            None => {
                let (target, dir) = (target.to_owned(), at.dir.display().to_string());
                self.repository.forget_waiting(&target)?;
                journal.summary.updated.push(UpdatedCheckout { target, dir, commit: newest });
                Ok(())
            }
            Some(why) => {
                journal.summary.take_up.push(waits(why));
                Ok(())
            }
        }
    }

    /// The result that waits for a target that is checked out.
    pub(crate) fn waits_for_checkout(&self, target: &str) -> Result<Option<TakeUp>, Error> {
        let Some((newest, own)) = self.repository.newest(target)? else { return Ok(None) };
        if self.repository.diverged(target)?.is_some() {
            let why = format!("{target} moved on since");
            let dir = self.checkout.root.display().to_string();
            return Ok(Some(TakeUp { target: target.to_owned(), dir, why, command: "toft land".into() }));
        }
        if newest == own {
            return Ok(None);
        }
        Ok(self.repository.checkouts(target)?.first().map(|at| TakeUp {
            target: target.to_owned(),
            dir: at.dir.display().to_string(),
            why: format!("{target} is checked out there"),
            command: "toft land".to_owned(),
        }))
    }

    /// Whether the check is known to fail on the newest state of a target.
    pub(crate) fn is_known_red(&self, target: &str) -> Result<bool, Error> {
        let Some((newest, _)) = self.repository.newest(target)? else { return Ok(false) };
        let tree = self.repository.tree(&newest)?;
        Ok(self.verdicts(vec![tree.clone()])?.get(&tree).is_some_and(Verdict::failed))
    }

    fn may_update(&self, at: &TargetCheckout) -> bool {
        let here = |dir: &Path| dir == self.checkout.root;
        self.rules.update == UpdateRule::Clean || self.asked_here && here(&at.dir)
    }
}

fn is_among(queue: &[ListedLanding], landing: &Landing) -> bool {
    queue.iter().any(|now| now.landing.is_still(landing))
}
