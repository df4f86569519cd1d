//! Checks of exact trees, and the memory of their verdicts.

use std::{collections::BTreeMap, sync::atomic::AtomicBool, thread};

use toft_core::{
    landing::Verdict,
    verbs::land::{RecordCheck, Verdicts},
};
use toft_runner::{CheckEnd, CheckOrder, CheckProcess};
use toft_session::error::Error;
use toft_vcs::landing::CandidateCommit;

use crate::{Journal, LandEvent, Lander};

/// A commit to be checked, with the landings that it adds.
pub(crate) struct ToCheck<'a> {
    pub(crate) candidate: &'a CandidateCommit,
    pub(crate) landings: Vec<String>,
}

impl Lander<'_> {
    /// What is known of these trees, by tree.
    pub(crate) fn verdicts(&self, trees: Vec<String>) -> Result<BTreeMap<String, Verdict>, Error> {
        let Some(repository) = self.work.session().located().repository.clone() else { return Ok(BTreeMap::new()) };
        let request = Verdicts { repository, trees, check: self.rules.check.digest() };
        let known = self.work.act(self.actor(), None, request)?;
        Ok(known.into_iter().map(|verdict| (verdict.tree.clone(), verdict)).collect())
    }

    /// Whether a tree passes the check. With `blames`, one that failed is checked once more before it is said.
    pub(crate) fn passes(
        &self,
        check: &ToCheck<'_>,
        blames: bool,
        journal: &mut Journal<'_>,
    ) -> Result<(bool, String), Error> {
        loop {
            let known = self.verdicts(vec![check.candidate.tree.clone()])?.remove(&check.candidate.tree);
            if let Some(verdict) = known {
                let failed = verdict.runs.iter().rev().find(|run| !run.passed);
                let said = failed.map(|run| format!("{}\nThe whole log: {}", run.message, run.log));
                if verdict.passed() {
                    return Ok((true, String::new()));
                }
                let failures = journal.failed.get(&verdict.tree).copied().unwrap_or_default();
                if failures > 1 || failures == 1 && !blames {
                    return Ok((false, said.unwrap_or_default()));
                }
            }
            self.check_all(std::slice::from_ref(check), journal)?;
        }
    }

    /// Runs the check on each of these side by side, and records the results.
    pub(crate) fn check_all(&self, checks: &[ToCheck<'_>], journal: &mut Journal<'_>) -> Result<(), Error> {
        let dir = self.work.checks_dir(&journal.target)?;
        let mut orders = Vec::new();
        for (slot, check) in checks.iter().enumerate() {
            let place = dir.join(slot.to_string());
            // What cannot be checked out does not pass.
            let failed = self.repository.check_out(&place, &check.candidate.commit).err();
            let tree = &check.candidate.tree;
            let stamp = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let log = dir.join("logs").join(format!("{}-{}.log", tree.get(..12).unwrap_or(tree), stamp.as_millis()));
            journal.say(&LandEvent::Checking { count: check.landings.len(), landings: check.landings.clone() });
            let around = match &self.sandbox {
                Some(sandbox) => sandbox.around_check(self.work.session(), &place)?,
                None => Vec::new(),
            };
            let order = CheckOrder {
                around,
                dir: place,
                commands: self.rules.check.commands.clone(),
                timeout_ms: u64::try_from(self.rules.timeout.as_millis()).unwrap_or(u64::MAX),
                log,
            };
            orders.push((order, failed.map(|error| format!("it cannot be checked out: {error}"))));
        }
        let never = AtomicBool::new(false);
        let stop = self.stop.unwrap_or(&never);
        let ends: Vec<Result<CheckEnd, Error>> = thread::scope(|scope| {
            let run = |(order, failed): &'_ (CheckOrder, Option<String>)| {
                let (order, failed) = (order.clone(), failed.clone());
                scope.spawn(move || match failed {
                    Some(message) => Ok(CheckEnd { passed: false, ms: 0, message, stopped: false }),
                    None => CheckProcess::start(&order)?.wait(stop),
                })
            };
            let running: Vec<_> = orders.iter().map(run).collect();
            running.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let Some(repository) = self.work.session().located().repository.clone() else { return Ok(()) };
        for ((check, (order, _)), end) in checks.iter().zip(&orders).zip(ends) {
            // A check that ends its own parent has failed.
            let end = end.unwrap_or_else(|error| CheckEnd {
                passed: false,
                ms: 0,
                message: error.to_string(),
                stopped: false,
            });
            let CheckEnd { passed, ms, message, stopped } = end;
            if stopped {
                return Err(Error::RunnerStopped);
            }
            journal.summary.checks += 1;
            journal.passed |= passed;
            if !passed {
                *journal.failed.entry(check.candidate.tree.clone()).or_default() += 1;
            }
            journal.say(&LandEvent::Checked { passed, ms, landings: check.landings.clone() });
            let request = RecordCheck {
                repository: repository.clone(),
                tree: check.candidate.tree.clone(),
                check: self.rules.check.digest(),
                passed,
                ms,
                message,
                log: order.log.display().to_string(),
            };
            self.work.act(self.actor(), None, request)?;
        }
        Ok(())
    }
}
