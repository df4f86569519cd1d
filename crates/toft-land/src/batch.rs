//! One round of a queue: a stack of candidates is checked in batches; what passes lands, the culprit is sent back.

use toft_core::{
    landing::{BounceReason, CulpritSearch, CulpritStep, LandingWait},
    verbs::land::ListedLanding,
};
use toft_session::{error::Error, land::LandHow};
use toft_vcs::landing::{CandidateCommit, MergeWay, Merged};

use crate::{
    Journal, LandRound, Lander,
    check::ToCheck,
    no_target,
    stack::{CandidateStack, Stacked},
};

/// How many characters of a failed check's output an agent is told.
const TOLD: usize = 2_000;

impl Lander<'_> {
    pub(crate) fn round(&self, target: &str, ids: &[String], journal: &mut Journal<'_>) -> Result<LandRound, Error> {
        self.repository.refresh(target)?;
        let (base, own) = self.repository.newest(target)?.ok_or_else(|| no_target(target))?;
        let all = self.work.landings(&[], 0)?;
        let mut entries = self.queued(target, ids)?;
        if self.record_found(&base, &entries, journal)? {
            return Ok(LandRound::Again);
        }
        // Without pull requests, one that is open is not waited for.
        entries.retain(|entry| matches!(entry.waits, None | Some(LandingWait::PullRequest { .. })));
        if let Some(waiting) = self.repository.diverged(target)? {
            return self.reunite(target, &own, &waiting, journal);
        }
        let CandidateStack { stacked, changed } = match entries.is_empty() {
            true => return Ok(LandRound::Over),
            false => self.stack(&base, &entries, &all, self.rules.batch * self.rules.slots, journal)?,
        };
        if stacked.is_empty() {
            return Ok(if changed { LandRound::Again } else { LandRound::Over });
        }
        if self.rules.check.commands.is_empty() {
            return self.land_all(target, &base, &own, &stacked, false, journal);
        }
        self.land_checked(target, (&base, &own), &stacked, journal)
    }

    /// Records work whose merge is in the target already, because its lander was killed or a person merged it.
    fn record_found(&self, base: &str, entries: &[ListedLanding], journal: &mut Journal<'_>) -> Result<bool, Error> {
        if entries.is_empty() {
            return Ok(false);
        }
        let found = self.repository.landed_in(base)?;
        let mut any = false;
        for ListedLanding { landing, .. } in entries {
            let found = found.get(&(landing.id.to_string(), landing.offer.tip.clone()));
            if let Some(commit) = found
                && self.has_change(base, commit, &landing.offer.tip)?
            {
                let candidate = CandidateCommit { commit: commit.clone(), tree: self.repository.tree(commit)? };
                let known = self.verdicts(vec![candidate.tree.clone()])?;
                let passed = known.get(&candidate.tree).is_some_and(toft_core::landing::Verdict::passed);
                self.record_landed(landing, &candidate, passed, journal)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Whether a target has the change of a tip, whose trailer is on `commit`. Anybody can write a trailer; what was merged is in
    /// the history, and what was squashed or rebased changes nothing on top of that commit.
    fn has_change(&self, base: &str, commit: &str, tip: &str) -> Result<bool, Error> {
        if self.rules.how == LandHow::Merge || self.repository.contains(tip, base)? {
            return Ok(self.repository.contains(tip, base)?);
        }
        let merged = self.repository.candidate(commit, tip, MergeWay::Squash, "Merge", &[])?;
        Ok(matches!(merged, Merged::Clean(merged) if merged.tree == self.repository.tree(commit)?))
    }

    /// Checks the ends of all batches side by side, then lands them in order up to the first that fails; there the culprit
    /// is looked for, and what stands behind it is built again without it.
    fn land_checked(
        &self,
        target: &str,
        (base, own): (&str, &str),
        stacked: &[Stacked],
        journal: &mut Journal<'_>,
    ) -> Result<LandRound, Error> {
        let batches: Vec<&[Stacked]> = stacked.chunks(self.rules.batch).collect();
        let ends = batches.iter().filter_map(|batch| batch.last());
        let mut known = self.verdicts(ends.map(|end| end.candidate.tree.clone()).collect())?;
        known.retain(|tree, verdict| verdict.passed() || journal.failed.contains_key(tree));
        let mut open: Vec<ToCheck<'_>> = Vec::new();
        for batch in &batches {
            if let Some(end) = batch.last().filter(|end| !known.contains_key(&end.candidate.tree)) {
                open.push(to_check(end, batch));
            }
        }
        self.check_all(&open, journal)?;
        let (mut base, mut own) = (base.to_owned(), own.to_owned());
        for batch in batches {
            let Some(end) = batch.last() else { continue };
            let alone = batch.len() == 1;
            let (passed, said) = self.passes(&to_check(end, batch), alone, journal)?;
            if passed {
                if matches!(self.land_all(target, &base, &own, batch, true, journal)?, LandRound::Again) {
                    let now = self.repository.newest(target)?.ok_or_else(|| no_target(target))?;
                    if now.0 != end.candidate.commit {
                        return Ok(LandRound::Again);
                    }
                    (base, own) = now;
                    continue;
                }
                return Ok(LandRound::Over);
            }
            return self.land_up_to_culprit(target, (&base, &own), batch, said, journal);
        }
        Ok(LandRound::Again)
    }

    /// Halves a failed batch until the culprit is alone: what stands before it lands, and it is sent back.
    fn land_up_to_culprit(
        &self,
        target: &str,
        (base, own): (&str, &str),
        batch: &[Stacked],
        mut said: String,
        journal: &mut Journal<'_>,
    ) -> Result<LandRound, Error> {
        let mut search = CulpritSearch::of(batch.len());
        let culprit = loop {
            match search.step() {
                CulpritStep::Check { count, blames } => {
                    let check = to_check(&batch[count - 1], &batch[..count]);
                    let (passed, why) = self.passes(&check, blames, journal)?;
                    said = if passed { said } else { why };
                    search = search.after(passed);
                }
                CulpritStep::Found { at } => break at,
                CulpritStep::Passes => return self.land_all(target, base, own, batch, true, journal),
            }
        };
        if culprit > 0 {
            self.land_all(target, base, own, &batch[..culprit], true, journal)?;
            let now = self.repository.newest(target)?.ok_or_else(|| no_target(target))?.0;
            if now != batch[culprit - 1].candidate.commit {
                // It was checked on top of what did not land after all.
                return Ok(LandRound::Again);
            }
        } else {
            let before = CandidateCommit { commit: base.to_owned(), tree: self.repository.tree(base)? };
            let alone = ToCheck { candidate: &before, landings: Vec::new() };
            // Where nothing has passed yet, the reason may be outside of the repository.
            if !journal.passed {
                self.check_all(std::slice::from_ref(&alone), journal)?;
            }
            let (green, why) = match journal.passed {
                true => self.passes(&alone, true, journal)?,
                false => (false, said.clone()),
            };
            if !green {
                journal.summary.red = Some(why);
                return Ok(LandRound::Over);
            }
        }
        let culprit = &batch[culprit].landing;
        let now = self.repository.newest(target)?.ok_or_else(|| no_target(target))?.0;
        let (what, more) = said.split_once('\n').unwrap_or((&said, ""));
        let message = format!("{what} with it on the newest {target}.\n{}", end_of(more));
        self.bounce(culprit, &now, BounceReason::Check, message, Vec::new(), journal)?;
        Ok(LandRound::Again)
    }
}

fn to_check<'a>(end: &'a Stacked, batch: &[Stacked]) -> ToCheck<'a> {
    let landings = batch.iter().map(|stacked| stacked.landing.id.to_string()).collect();
    ToCheck { candidate: &end.candidate, landings }
}

/// The end of a long text.
fn end_of(text: &str) -> String {
    let count = text.chars().count();
    match count > TOLD {
        true => {
            let (first, _) = text.split_once('\n').unwrap_or((text, ""));
            format!("{first}\n…{}", text.chars().skip(count - TOLD).collect::<String>())
        }
        false => text.to_owned(),
    }
}
