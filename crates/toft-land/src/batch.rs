//! Checks candidates in batches; what passes lands, and the culprit of a batch that fails is sent back.

use toft_core::landing::{CulpritSearch, CulpritStep, Verdict};
use toft_session::error::Error;

use crate::{
    Lander,
    bounce::BounceNotice,
    check::{CheckOutcome, CheckRequest},
    run::{LandRun, RoundOutcome},
    stack::StackedCandidate,
    target::TargetTip,
};

/// The most characters of a failed check's output that an agent is told.
const MAX_OUTPUT_CHARS: usize = 2_000;

/// The piece of work with which a batch fails.
#[derive(Debug, PartialEq, Eq)]
struct Culprit {
    /// Its position in the batch. What stands before it passes.
    position: usize,
    /// What the failed check said.
    failure: String,
}

/// Finds the culprit of a batch that failed with `failure`; `None` if the batch passes after all.
///
/// `check` gets how many pieces of work to check from the start of the batch, and whether somebody is blamed for it.
fn find_culprit<E>(
    batch_len: usize,
    mut failure: String,
    mut check: impl FnMut(usize, bool) -> Result<CheckOutcome, E>,
) -> Result<Option<Culprit>, E> {
    let mut search = CulpritSearch::of(batch_len);
    loop {
        match search.step() {
            CulpritStep::Found { at } => return Ok(Some(Culprit { position: at, failure })),
            CulpritStep::Passes => return Ok(None),
            CulpritStep::Check { count, blames } => {
                let outcome = check(count, blames)?;
                search = search.after(outcome == CheckOutcome::Passed);
                if let CheckOutcome::Failed(text) = outcome {
                    failure = text;
                }
            }
        }
    }
}

impl Lander<'_> {
    /// Checks all batches side by side, then lands them in order up to the first that fails. What stands behind the
    /// culprit was built on top of it, so the next round builds it again.
    pub(crate) fn land_checked_batches(
        &self,
        mut tip: TargetTip,
        candidates: &[StackedCandidate],
        run: &mut LandRun<'_>,
    ) -> Result<RoundOutcome, Error> {
        let batches: Vec<&[StackedCandidate]> = candidates.chunks(self.rules.batch).collect();
        self.check_unknown_batches(&batches, run)?;
        for batch in batches {
            let Some(request) = CheckRequest::of_batch(batch) else { continue };
            let blames = batch.len() == 1;
            if let CheckOutcome::Failed(failure) = self.check_candidate(&request, blames, run)? {
                return self.land_up_to_culprit(&tip, batch, failure, run);
            }
            self.land_stack(&tip, batch, true, run)?;
            tip = self.require_tip(&tip.target)?;
            // The next batch was checked on top of this one: it lands only if this one did.
            if tip.base != request.candidate.commit {
                return Ok(RoundOutcome::Changed);
            }
        }
        Ok(RoundOutcome::Changed)
    }

    /// Runs the check on the end of each batch without a verdict. One that failed in an earlier run is checked again.
    fn check_unknown_batches(&self, batches: &[&[StackedCandidate]], run: &mut LandRun<'_>) -> Result<(), Error> {
        let mut requests: Vec<CheckRequest<'_>> =
            batches.iter().filter_map(|batch| CheckRequest::of_batch(batch)).collect();
        let trees = requests.iter().map(|request| request.candidate.tree.clone()).collect();
        let verdicts = self.verdicts(trees)?;
        requests.retain(|request| {
            let tree = &request.candidate.tree;
            let passed = verdicts.get(tree).is_some_and(Verdict::passed);
            let failed_in_run = run.failures_by_tree.contains_key(tree);
            !passed && !failed_in_run
        });
        self.run_checks(&requests, run)
    }

    /// Lands what stands before the culprit of a failed batch, and sends the culprit back.
    fn land_up_to_culprit(
        &self,
        tip: &TargetTip,
        batch: &[StackedCandidate],
        failure: String,
        run: &mut LandRun<'_>,
    ) -> Result<RoundOutcome, Error> {
        let found =
            find_culprit(batch.len(), failure, |count, blames| match CheckRequest::of_batch(&batch[..count]) {
                Some(request) => self.check_candidate(&request, blames, run),
                None => Ok(CheckOutcome::Passed),
            })?;
        let Some(Culprit { position, failure }) = found else {
            self.land_stack(tip, batch, true, run)?;
            return Ok(RoundOutcome::Changed);
        };
        let innocent = &batch[..position];
        if let Some(last) = innocent.last() {
            self.land_stack(tip, innocent, true, run)?;
            if self.require_tip(&tip.target)?.base != last.candidate.commit {
                // The culprit was checked on top of work that did not land after all.
                return Ok(RoundOutcome::Changed);
            }
        } else if let Some(red) = self.target_failure(&tip.base, &failure, run)? {
            run.summary.red = Some(red);
            return Ok(RoundOutcome::Settled);
        }
        let base = self.require_tip(&tip.target)?.base;
        let notice = BounceNotice::failed_check(blame_message(&failure, &tip.target));
        self.bounce(&batch[position].landing, &base, notice, run)?;
        Ok(RoundOutcome::Changed)
    }

    /// Returns why the target fails the check without any of the work, if it does: then nobody is to blame.
    fn target_failure(&self, base: &str, failure: &str, run: &mut LandRun<'_>) -> Result<Option<String>, Error> {
        let base = self.candidate_at(base)?;
        let request = CheckRequest::of_target(&base);
        // While nothing has passed in this run, the reason may be outside of the repository, such as a missing program.
        // An older verdict of the target does not tell.
        if !run.any_check_passed {
            self.run_checks(std::slice::from_ref(&request), run)?;
        }
        if !run.any_check_passed {
            return Ok(Some(failure.to_owned()));
        }
        Ok(match self.check_candidate(&request, true, run)? {
            CheckOutcome::Passed => None,
            CheckOutcome::Failed(why) => Some(why),
        })
    }
}

/// Tells an agent which check failed with its work, and the end of the output.
fn blame_message(failure: &str, target: &str) -> String {
    let (how_it_ended, output) = failure.split_once('\n').unwrap_or((failure, ""));
    format!("{how_it_ended} with it on the newest {target}.\n{}", end_of_output(output))
}

/// Cuts a long output to its first line, which names the command, and its end.
fn end_of_output(output: &str) -> String {
    let chars = output.chars().count();
    if chars <= MAX_OUTPUT_CHARS {
        return output.to_owned();
    }
    let (first_line, _) = output.split_once('\n').unwrap_or((output, ""));
    let end: String = output.chars().skip(chars - MAX_OUTPUT_CHARS).collect();
    format!("{first_line}\n…{end}")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Finds the culprit in a batch in which the work at `bad` fails, and counts the checks.
    fn search(batch_len: usize, bad: usize) -> (Option<Culprit>, usize) {
        let mut checks = 0;
        let found = find_culprit(batch_len, "whole batch".into(), |count, _| {
            checks += 1;
            Ok::<_, Infallible>(match count > bad {
                true => CheckOutcome::Failed(format!("failed with {count}")),
                false => CheckOutcome::Passed,
            })
        });
        (found.unwrap(), checks)
    }

    #[test]
    fn halving_finds_the_culprit_and_says_what_its_own_check_said() {
        for bad in 0..8 {
            let (found, checks) = search(8, bad);
            assert_eq!(found, Some(Culprit { position: bad, failure: format!("failed with {}", bad + 1) }));
            assert!(checks <= 4, "three halvings and one repeat");
        }
    }

    #[test]
    fn a_failure_that_does_not_repeat_blames_nobody() {
        let found = find_culprit(1, "flaky".into(), |_, _| Ok::<_, Infallible>(CheckOutcome::Passed));
        assert_eq!(found.unwrap(), None);
    }

    #[test]
    fn a_long_output_keeps_its_first_line_and_its_end() {
        let output = format!("make test\n{}error: lost", "x".repeat(5_000));
        let message = blame_message(&format!("exit 2\n{output}"), "main");
        assert!(message.starts_with("exit 2 with it on the newest main.\nmake test\n…x"));
        assert!(message.ends_with("error: lost"));
    }
}
