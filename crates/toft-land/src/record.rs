//! Tells the store what has landed, and lets go of commits that were kept for it.

use std::{collections::BTreeSet, slice};

use toft_core::{
    landing::{Landing, LandingState},
    verbs::land::{LandedWork, RecordLandings},
};
use toft_session::error::Error;
use toft_vcs::landing::CandidateCommit;

use crate::{Lander, report::LandEvent, run::LandRun, stack::StackedCandidate};

impl Lander<'_> {
    /// Records a stack that the target was moved to. `tree` is that of its last candidate.
    pub(crate) fn record_stack(
        &self,
        stack: &[StackedCandidate],
        tree: &str,
        checked: bool,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let landed = stack.iter().map(|StackedCandidate { landing, candidate, parent }| LandedWork {
            before: parent.clone(),
            ..landed_work(landing, &candidate.commit)
        });
        self.record_landings(landed.collect(), tree, checked, run)
    }

    /// Records work that the target has, however it got there. It cannot be taken back by toft, which does not know
    /// what the target was before.
    pub(crate) fn record_contained(
        &self,
        landing: &Landing,
        candidate: &CandidateCommit,
        checked: bool,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        self.record_landings(vec![landed_work(landing, &candidate.commit)], &candidate.tree, checked, run)
    }

    /// Records work that a forge merged as `commit`. The forge's own checks decided.
    pub(crate) fn record_merged_request(
        &self,
        landing: &Landing,
        commit: &str,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        self.record_landings(vec![landed_work(landing, commit)], "", false, run)
    }

    fn record_landings(
        &self,
        landed: Vec<LandedWork>,
        tree: &str,
        checked: bool,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let check = checked.then(|| self.rules.check.digest());
        let request = RecordLandings { landed, tree: tree.to_owned(), check };
        let recorded = self.work.act(self.agent_name(), None, request)?;
        // The target has the commits now, so git keeps them.
        let pins: Vec<String> = recorded.iter().map(Landing::pin).collect();
        run.note_failure(self.repository.unpin(&pins));
        for landing in recorded {
            run.report(&LandEvent::Landed { landing: Box::new(landing.clone()) });
            run.summary.landed.push(landing);
        }
        Ok(())
    }

    /// Lets go of kept commits whose landing was recorded by a lander that was killed before it could.
    pub(crate) fn unpin_landed(&self) -> Result<(), Error> {
        let mut pins = self.repository.pins()?;
        if pins.is_empty() {
            return Ok(());
        }
        let live: BTreeSet<String> =
            self.work.landings(&[], 0)?.iter().map(|entry| Landing::pin(&entry.landing)).collect();
        pins.retain(|pin| !live.contains(pin));
        let mut landed = Vec::new();
        for pin in pins {
            if self.is_pin_of_landed(&pin)? {
                landed.push(pin);
            }
        }
        Ok(self.repository.unpin(&landed)?)
    }

    fn is_pin_of_landed(&self, pin: &String) -> Result<bool, Error> {
        match self.work.landings(slice::from_ref(pin), 0) {
            Ok(found) => Ok(found.iter().any(|entry| entry.landing.state == LandingState::Landed)),
            // No landing of this store has that name.
            Err(Error::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Work that landed as `commit`, on top of an unknown commit.
fn landed_work(landing: &Landing, commit: &str) -> LandedWork {
    LandedWork {
        landing: landing.id.clone(),
        tip: landing.offer.tip.clone(),
        commit: commit.to_owned(),
        before: String::new(),
    }
}
