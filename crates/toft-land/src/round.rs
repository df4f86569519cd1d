//! One round in a target: record what is merged already, build candidates, check them, land what passes.

use toft_core::{
    landing::{LandingWait, Verdict},
    verbs::land::ListedLanding,
};
use toft_session::{error::Error, land::LandHow};
use toft_vcs::landing::{CandidateCommit, MergeWay, Merged};

use crate::{
    Lander,
    repository::{CandidateSpec, MergeRepository as _},
    run::{LandRun, RoundOutcome},
    stack::CandidateStack,
};

impl Lander<'_> {
    pub(crate) fn land_round(
        &self,
        target: &str,
        ids: &[String],
        run: &mut LandRun<'_>,
    ) -> Result<RoundOutcome, Error> {
        self.repository.refresh(target)?;
        let tip = self.require_tip(target)?;
        let known = self.work.landings(&[], 0)?;
        let mut queued = self.queued_landings(target, ids)?;
        if self.record_merged(&tip.base, &queued, run)? {
            return Ok(RoundOutcome::Changed);
        }
        // Without pull requests, one that is still open from before is not waited for.
        queued.retain(|entry| matches!(entry.waits, None | Some(LandingWait::PullRequest { .. })));
        if let Some(pending) = self.repository.diverged(target)? {
            return self.merge_diverged(target, &tip.own, &pending, run);
        }
        if queued.is_empty() {
            return Ok(RoundOutcome::Settled);
        }
        let limit = self.rules.batch;
        let CandidateStack { candidates, changed } = self.build_stack(&tip.base, &queued, &known, limit, run)?;
        if candidates.is_empty() {
            return Ok(if changed { RoundOutcome::Changed } else { RoundOutcome::Settled });
        }
        if self.rules.check.commands.is_empty() {
            self.land_stack(&tip, &candidates, false, run)?;
            return Ok(RoundOutcome::Changed);
        }
        self.land_checked_batches(tip, &candidates, run)
    }

    /// Records work that the target has already, because its lander was killed or a person merged it. Returns whether
    /// there was any.
    fn record_merged(&self, base: &str, queued: &[ListedLanding], run: &mut LandRun<'_>) -> Result<bool, Error> {
        if queued.is_empty() {
            return Ok(false);
        }
        let merged = self.repository.landed_in(base)?;
        let mut any_recorded = false;
        for ListedLanding { landing, .. } in queued {
            let Some(commit) = merged.get(&(landing.id.to_string(), landing.offer.tip.clone())) else { continue };
            if !self.has_change_of(base, commit, &landing.offer.tip)? {
                continue;
            }
            let candidate = self.candidate_at(commit)?;
            let checked = self.verdict_of(&candidate.tree)?.as_ref().is_some_and(Verdict::passed);
            self.record_contained(landing, &candidate, checked, run)?;
            any_recorded = true;
        }
        Ok(any_recorded)
    }

    /// Returns whether a target really has the change that the trailer on `commit` claims. Anybody can write a trailer.
    fn has_change_of(&self, base: &str, commit: &str, tip: &str) -> Result<bool, Error> {
        if self.rules.how == LandHow::Merge || self.repository.contains(tip, base)? {
            return Ok(self.repository.contains(tip, base)?);
        }
        // Squashed and rebased work is not in the history; merging it once more must change nothing.
        let spec = CandidateSpec { way: MergeWay::Squash, ..CandidateSpec::merge("Merge") };
        let merged = self.repository.build_candidate(commit, tip, &spec)?;
        Ok(matches!(merged, Merged::Clean(merged) if merged.tree == self.repository.tree_of(commit)?))
    }

    /// Returns a commit that exists already as a candidate.
    pub(crate) fn candidate_at(&self, commit: &str) -> Result<CandidateCommit, Error> {
        Ok(CandidateCommit { commit: commit.to_owned(), tree: self.repository.tree_of(commit)? })
    }
}
