//! Checks of exact trees, and the memory of their verdicts.

use std::{
    collections::BTreeMap,
    path::Path,
    slice,
    sync::atomic::AtomicBool,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use toft_core::{
    landing::Verdict,
    verbs::land::{RecordCheck, Verdicts},
};
use toft_runner::{CheckEnd, CheckOrder, CheckProcess};
use toft_session::error::Error;
use toft_vcs::landing::CandidateCommit;

use crate::{Lander, lander::short_commit, report::LandEvent, run::LandRun, stack::StackedCandidate};

/// A commit to check, with the landings that it adds to the target.
pub(crate) struct CheckRequest<'a> {
    pub(crate) candidate: &'a CandidateCommit,
    pub(crate) landings: Vec<String>,
}

impl<'a> CheckRequest<'a> {
    /// Checks the target itself.
    pub(crate) fn of_target(base: &'a CandidateCommit) -> Self {
        Self { candidate: base, landings: Vec::new() }
    }

    /// Checks the last candidate of a batch, which has the work of all of them. An empty batch has none.
    pub(crate) fn of_batch(batch: &'a [StackedCandidate]) -> Option<Self> {
        let last = batch.last()?;
        let landings = batch.iter().map(|stacked| stacked.landing.id.to_string()).collect();
        Some(Self { candidate: &last.candidate, landings })
    }
}

/// What a check came to, after repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckOutcome {
    Passed,
    /// How the last run ended, the end of its output, and the path of its log.
    Failed(String),
}

/// Decides by what is known of a tree; `None` if the check has to run, or to run again.
///
/// One pass is enough, whenever it was. Failures count only in this run, because older ones may have had other
/// reasons, such as a full disk. With `blames`, one failure may be bad luck: it takes two.
fn conclude(verdict: &Verdict, failures_in_run: usize, blames: bool) -> Option<CheckOutcome> {
    if verdict.passed() {
        return Some(CheckOutcome::Passed);
    }
    let enough_failures = if blames { 2 } else { 1 };
    (failures_in_run >= enough_failures).then(|| {
        let last_failure = verdict.runs.iter().rev().find(|run| !run.passed);
        let text = last_failure.map(|run| format!("{}\nThe whole log: {}", run.message, run.log));
        CheckOutcome::Failed(text.unwrap_or_default())
    })
}

impl Lander<'_> {
    /// Returns what is known of these trees, by tree.
    pub(crate) fn verdicts(&self, trees: Vec<String>) -> Result<BTreeMap<String, Verdict>, Error> {
        let Some(repository) = self.work.session().located().repository.clone() else { return Ok(BTreeMap::new()) };
        let request = Verdicts { repository, trees, check: self.rules.check.digest() };
        let verdicts = self.work.act(self.agent_name(), None, request)?;
        Ok(verdicts.into_iter().map(|verdict| (verdict.tree.clone(), verdict)).collect())
    }

    pub(crate) fn verdict_of(&self, tree: &str) -> Result<Option<Verdict>, Error> {
        Ok(self.verdicts(vec![tree.to_owned()])?.remove(tree))
    }

    /// Checks a candidate as often as [`conclude`] needs. `blames` says that a failure sends somebody's work back.
    pub(crate) fn check_candidate(
        &self,
        request: &CheckRequest<'_>,
        blames: bool,
        run: &mut LandRun<'_>,
    ) -> Result<CheckOutcome, Error> {
        let tree = &request.candidate.tree;
        loop {
            if let Some(verdict) = self.verdict_of(tree)? {
                let failures_in_run = run.failures_by_tree.get(tree).copied().unwrap_or_default();
                if let Some(outcome) = conclude(&verdict, failures_in_run, blames) {
                    return Ok(outcome);
                }
            }
            self.run_checks(slice::from_ref(request), run)?;
        }
    }

    /// Runs the check once on each candidate, side by side, and records the results.
    pub(crate) fn run_checks(&self, requests: &[CheckRequest<'_>], run: &mut LandRun<'_>) -> Result<(), Error> {
        let dir = self.work.checks_dir(&run.target)?;
        let mut prepared = Vec::new();
        for (slot, request) in requests.iter().enumerate() {
            prepared.push(self.prepare_check(&dir, slot, request)?);
            let landings = request.landings.clone();
            run.report(&LandEvent::Checking { count: landings.len(), landings });
        }
        let never_stopped = AtomicBool::new(false);
        let ends = run_side_by_side(&prepared, self.stop.unwrap_or(&never_stopped));
        for ((request, prepared), end) in requests.iter().zip(&prepared).zip(ends) {
            self.record_check(request, prepared, end, run)?;
        }
        Ok(())
    }

    /// Checks a candidate out in the directory of a slot. One that cannot be checked out fails its check.
    fn prepare_check(&self, dir: &Path, slot: usize, request: &CheckRequest<'_>) -> Result<PreparedCheck, Error> {
        // A slot keeps its directory: ignored build output of the last check makes the next one fast.
        let slot_dir = dir.join(slot.to_string());
        let checked_out = self.repository.check_out(&slot_dir, &request.candidate.commit);
        // The same tree may be checked twice, and both logs are named by verdicts.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let log = format!("{}-{}.log", short_commit(&request.candidate.tree), since_epoch.as_millis());
        let around = match &self.check_sandbox {
            Some(sandbox) => sandbox.around_check(self.work.session(), &slot_dir)?,
            None => Vec::new(),
        };
        Ok(PreparedCheck {
            order: CheckOrder {
                around,
                dir: slot_dir,
                commands: self.rules.check.commands.clone(),
                timeout_ms: u64::try_from(self.rules.timeout.as_millis()).unwrap_or(u64::MAX),
                log: dir.join("logs").join(log),
            },
            checkout_failure: checked_out.err().map(|error| format!("it cannot be checked out: {error}")),
        })
    }

    fn record_check(
        &self,
        request: &CheckRequest<'_>,
        prepared: &PreparedCheck,
        end: CheckEnd,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let Some(repository) = self.work.session().located().repository.clone() else { return Ok(()) };
        let CheckEnd { passed, ms, message, stopped } = end;
        if stopped {
            return Err(Error::RunnerStopped);
        }
        let tree = request.candidate.tree.clone();
        run.summary.checks += 1;
        run.any_check_passed |= passed;
        if !passed {
            *run.failures_by_tree.entry(tree.clone()).or_default() += 1;
        }
        run.report(&LandEvent::Checked { passed, ms, landings: request.landings.clone() });
        let log = prepared.order.log.display().to_string();
        let record = RecordCheck { repository, tree, check: self.rules.check.digest(), passed, ms, message, log };
        self.work.act(self.agent_name(), None, record)?;
        Ok(())
    }
}

/// A check that is ready to run.
struct PreparedCheck {
    order: CheckOrder,
    /// Why the candidate could not be checked out.
    checkout_failure: Option<String>,
}

impl PreparedCheck {
    fn run(&self, stop: &AtomicBool) -> CheckEnd {
        if let Some(message) = &self.checkout_failure {
            return failed_check(message.clone());
        }
        let ended = CheckProcess::start(&self.order).and_then(|process| process.wait(stop));
        // A check that kills the process which runs it has failed, and so has one that cannot start.
        ended.unwrap_or_else(|error| failed_check(error.to_string()))
    }
}

fn failed_check(message: String) -> CheckEnd {
    CheckEnd { passed: false, ms: 0, message, stopped: false }
}

fn run_side_by_side(checks: &[PreparedCheck], stop: &AtomicBool) -> Vec<CheckEnd> {
    thread::scope(|scope| {
        let threads: Vec<_> = checks.iter().map(|check| scope.spawn(move || check.run(stop))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

#[cfg(test)]
mod tests {
    use toft_core::{id::RepositoryId, landing::CheckRun, time::Timestamp};

    use super::*;

    fn verdict(runs: &[bool]) -> Verdict {
        let run = |passed: &bool| CheckRun {
            passed: *passed,
            at: Timestamp(0),
            ms: 1,
            message: "`make test` exited with 2".into(),
            log: "/logs/1.log".into(),
        };
        Verdict {
            key: String::new(),
            repository: RepositoryId::known("rp_1"),
            tree: "tree".into(),
            runs: runs.iter().map(run).collect(),
        }
    }

    #[test]
    fn one_pass_outweighs_every_failure() {
        assert_eq!(conclude(&verdict(&[false, true, false]), 2, true), Some(CheckOutcome::Passed));
    }

    #[test]
    fn failures_of_earlier_runs_do_not_count() {
        assert_eq!(conclude(&verdict(&[false, false, false]), 0, false), None);
    }

    #[test]
    fn blame_takes_two_failures_in_one_run() {
        assert_eq!(conclude(&verdict(&[false]), 1, true), None);
        let failed = CheckOutcome::Failed("`make test` exited with 2\nThe whole log: /logs/1.log".into());
        assert_eq!(conclude(&verdict(&[false, false]), 2, true), Some(failed.clone()));
        assert_eq!(conclude(&verdict(&[false]), 1, false), Some(failed));
    }
}
