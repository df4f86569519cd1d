//! The lander of one repository: what it may do, and the order in which it does it.

use std::{collections::BTreeSet, sync::atomic::AtomicBool, thread, time::Duration};

use toft_core::{
    landing::{Landing, LandingState, LandingWait},
    refusal::Refusal,
    verbs::land::{Begin, ListedLanding, Move, Retarget, Step},
};
use toft_runner::{Network, Sandbox};
use toft_session::{
    error::Error,
    land::{CheckSandbox, LandHow, LandRules},
};
use toft_vcs::{Checkout, RepoLock, landing::LandingRepository};
use toft_work::Work;

use crate::{
    report::{LandEvent, LandSummary},
    run::{LandRun, RoundOutcome},
};

/// How often a lander that waits for another one tries to take the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Characters of a commit that a message shows.
const SHORT_COMMIT_CHARS: usize = 12;

/// Lands the work of one repository.
///
/// One lander at a time works on a target: [`land`](Self::land) waits for the target's lock.
pub struct Lander<'w> {
    pub(crate) work: Work<'w>,
    pub(crate) checkout: &'w Checkout,
    pub(crate) repository: LandingRepository,
    pub(crate) rules: &'w LandRules,
    /// Whether a person called it in this checkout, which may then be updated under every rule.
    pub(crate) called_here: bool,
    pub(crate) check_sandbox: Option<Sandbox>,
    /// Ends running checks, and with them the run, when it becomes true.
    pub(crate) stop: Option<&'w AtomicBool>,
    /// The only tip that may land, whole or its beginning: the one that a person has looked at.
    reviewed_tip: Option<String>,
}

impl<'w> Lander<'w> {
    /// Opens the repository of a session for landing, with the session's rules.
    pub fn open(work: Work<'w>) -> Result<Self, Error> {
        let located = work.session().located();
        let no_repository = || Error::NoRepository { dir: located.dir.clone() };
        let checkout = located.checkout.as_ref().ok_or_else(no_repository)?;
        let rules = &located.land;
        let check_sandbox = match rules.sandbox {
            CheckSandbox::None => None,
            CheckSandbox::Files => Some(Sandbox::default()),
            CheckSandbox::Offline => Some(Sandbox { network: Network::Closed, ..Sandbox::default() }),
        };
        Ok(Self {
            work,
            checkout,
            repository: LandingRepository::open(checkout, &rules.union, rules.pushed())?,
            rules,
            called_here: false,
            check_sandbox,
            stop: None,
            reviewed_tip: None,
        })
    }

    /// Allows it to update the checkout that it was called in, because a person called it there.
    #[must_use]
    pub fn called_here(mut self) -> Self {
        self.called_here = true;
        self
    }

    /// Runs checks in this sandbox, if there is one: checks run what agents wrote.
    #[must_use]
    pub fn with_check_sandbox(mut self, sandbox: Option<Sandbox>) -> Self {
        self.check_sandbox = sandbox.or(self.check_sandbox);
        self
    }

    /// Lands nothing but this commit, if there is one: what was finished later was not looked at.
    #[must_use]
    pub fn with_reviewed_tip(mut self, commit: Option<String>) -> Self {
        self.reviewed_tip = commit;
        self
    }

    /// Stops as soon as `stop` is true.
    #[must_use]
    pub fn with_stop_flag(mut self, stop: &'w AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Returns whether another lander works on a target of queued work.
    pub fn is_another_at_work(&self) -> Result<bool, Error> {
        for entry in self.work.landings(&[], 0)? {
            if entry.landing.state == LandingState::Queued && self.try_lock(&entry.landing.offer.target)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lands finished work: what `ids` name, or everything that is ready. Withdrawn work that is named is queued again.
    pub fn land(&self, ids: &[String], on_event: &mut dyn FnMut(&LandEvent)) -> Result<LandSummary, Error> {
        let repository = self.work.session().located().repository.as_ref().map(ToString::to_string).unwrap_or_default();
        self.rules.check.require_trust("checking what lands", &repository)?;
        self.requeue_withdrawn(ids)?;
        // Refuses a caller that may not land, before anything moves.
        self.work.act(self.agent_name(), None, Begin {})?;
        let unchecked = self.rules.check.commands.is_empty();
        let mut run = LandRun::new(LandSummary { unchecked, ..LandSummary::default() }, on_event);
        // Work of other machines can only be merged once its commits are here.
        for problem in self.work.take_sent_work(ids)? {
            run.add_note(problem);
        }
        self.retarget_queued(ids)?;

        // The queue is listed anew for each target: agents finish work while a check runs.
        let mut done = BTreeSet::new();
        while let Some(target) = self.next_target(ids, &done)? {
            self.land_in_target(&target, ids, &mut run)?;
            done.insert(target);
        }
        for target in self.pending_targets(&done)? {
            self.settle_pending(&target, &mut run)?;
        }

        let unpinned = self.unpin_landed();
        run.note_failure(unpinned);
        self.list_what_waits(ids, &mut run)?;
        Ok(run.summary)
    }

    /// Lists work by id, or all that may still land. Work that was finished again after a person looked at it is refused.
    pub(crate) fn named_landings(&self, ids: &[String]) -> Result<Vec<ListedLanding>, Error> {
        let named = self.work.landings(ids, 0)?;
        for ListedLanding { landing, .. } in &named {
            if !self.is_at_reviewed_tip(landing)? {
                let state = format!("finished as another commit, {}", short_commit(&landing.offer.tip));
                let wanted = "look at it again: toft land -n".to_owned();
                return Err(Refusal::WrongState { id: landing.id.to_string(), state, wanted }.into());
            }
        }
        Ok(named)
    }

    /// Lists the queued work of a target.
    pub(crate) fn queued_landings(&self, target: &str, ids: &[String]) -> Result<Vec<ListedLanding>, Error> {
        let mut queued = Vec::new();
        for entry in self.work.landings(ids, 0)? {
            let landing = &entry.landing;
            let is_queued_here = landing.offer.target == target && landing.state == LandingState::Queued;
            if is_queued_here && self.is_at_reviewed_tip(landing)? {
                queued.push(entry);
            }
        }
        Ok(queued)
    }

    /// Returns the name under which it writes to the store.
    pub(crate) fn agent_name(&self) -> &str {
        &self.work.session().located().agent
    }

    fn is_at_reviewed_tip(&self, landing: &Landing) -> Result<bool, Refusal> {
        self.reviewed_tip.as_ref().map_or(Ok(true), |tip| landing.is_at(tip))
    }

    fn requeue_withdrawn(&self, ids: &[String]) -> Result<(), Error> {
        for entry in self.named_landings(ids)? {
            // Without names everything is listed, and what was withdrawn stays withdrawn.
            if !ids.is_empty() && entry.landing.state == LandingState::Withdrawn {
                let id = entry.landing.id.to_string();
                self.work.act(self.agent_name(), None, Move { id, to: Step::Queue, reason: String::new() })?;
            }
        }
        Ok(())
    }

    /// Points queued work at the target that the configuration names now, which may have changed since it was finished.
    fn retarget_queued(&self, ids: &[String]) -> Result<(), Error> {
        let Some(target) = &self.rules.into else { return Ok(()) };
        for ListedLanding { landing, elsewhere, .. } in self.work.landings(ids, 0)? {
            // A revert belongs to the target that has what it takes back.
            let may_move = !elsewhere && landing.reverts.is_none();
            if may_move && landing.state == LandingState::Queued && landing.offer.target != *target {
                let request = Retarget { landing: landing.id, target: target.clone() };
                self.work.act(self.agent_name(), None, request)?;
            }
        }
        Ok(())
    }

    /// Returns the target of the first queued work whose target is not in `done`.
    fn next_target(&self, ids: &[String], done: &BTreeSet<String>) -> Result<Option<String>, Error> {
        let entries = self.work.landings(ids, 0)?.into_iter();
        let mut targets =
            entries.filter(|entry| entry.landing.state == LandingState::Queued).map(|entry| entry.landing.offer.target);
        Ok(targets.find(|target| !done.contains(target)))
    }

    fn land_in_target(&self, target: &str, ids: &[String], run: &mut LandRun<'_>) -> Result<(), Error> {
        let _lock = self.lock(target, run)?;
        target.clone_into(&mut run.target);
        if let Some(why) = self.missing_target(target)? {
            run.add_blocker(why);
            return Ok(());
        }
        self.repeat_rounds(target, ids, run)?;
        let updated = self.update_checkout(target, run);
        run.note_failure(updated);
        Ok(())
    }

    /// Returns why nothing can land in a target that is no branch here.
    fn missing_target(&self, target: &str) -> Result<Option<String>, Error> {
        if self.repository.remote_branch(target).is_some() || self.repository.commit(target)?.is_some() {
            return Ok(None);
        }
        // Whoever wrote the repository's files must not decide where a clone publishes.
        let may_not_push = self.rules.pushed().is_none() && self.repository.names_remote(target)?;
        Ok(Some(match may_not_push {
            true => format!(
                "{target} is a branch of a remote: only `into` in your own configuration or in \
                 .git/toft/config.toml lets work be pushed there"
            ),
            false => format!("there is no branch {target} here; `into` in [land] names the one to land in"),
        }))
    }

    /// Repeats rounds until one changes nothing. A remote that fails ends the rounds, but not the run.
    fn repeat_rounds(&self, target: &str, ids: &[String], run: &mut LandRun<'_>) -> Result<(), Error> {
        loop {
            let outcome = match self.rules.how {
                LandHow::Pr => self.follow_pull_requests(target, ids, run),
                LandHow::Merge | LandHow::Squash | LandHow::Rebase => self.land_round(target, ids, run),
            };
            match outcome {
                Ok(RoundOutcome::Changed) => {}
                Ok(RoundOutcome::Settled) => return Ok(()),
                Err(Error::Exchange(error)) => {
                    run.add_blocker(format!("nothing more lands in {target} now: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn settle_pending(&self, target: &str, run: &mut LandRun<'_>) -> Result<(), Error> {
        let _lock = self.lock(target, run)?;
        target.clone_into(&mut run.target);
        self.merge_all_diverged(target, run)?;
        let updated = self.update_checkout(target, run);
        run.note_failure(updated);
        Ok(())
    }

    /// Puts what is still queued into the summary; if nothing that was named could land, all that was named.
    fn list_what_waits(&self, ids: &[String], run: &mut LandRun<'_>) -> Result<(), Error> {
        let everything = self.work.landings(&[], 0)?;
        let issue_of = |id| everything.iter().find(|entry| entry.landing.id == id)?.landing.issue.clone();
        let mut waiting = self.work.landings(ids, 0)?;
        waiting.retain(|entry| entry.landing.state == LandingState::Queued);
        for entry in &mut waiting {
            if entry.waits.is_none() {
                let fix = run.waits_for_fix.get(&entry.landing.id).cloned();
                entry.waits = fix.map(|landing| LandingWait::Fix { issue: issue_of(landing.clone()), landing });
            }
        }
        run.summary.waiting = waiting;
        let LandSummary { landed, bounced, waiting, .. } = &run.summary;
        if !ids.is_empty() && landed.is_empty() && bounced.is_empty() && waiting.is_empty() {
            run.summary.named = self.work.landings(ids, 0)?;
        }
        Ok(())
    }

    /// Waits until no other lander works on a target. The first wait is reported.
    fn lock(&self, target: &str, run: &mut LandRun<'_>) -> Result<RepoLock, Error> {
        if let Some(lock) = self.try_lock(target)? {
            return Ok(lock);
        }
        run.report(&LandEvent::Waiting { target: target.to_owned() });
        loop {
            thread::sleep(LOCK_POLL_INTERVAL);
            if let Some(lock) = self.try_lock(target)? {
                return Ok(lock);
            }
        }
    }

    fn try_lock(&self, target: &str) -> Result<Option<RepoLock>, Error> {
        // A lock is a file, and a branch name may have directories.
        let name = format!("land-{}", target.replace('/', "%"));
        Ok(RepoLock::attempt(&self.checkout.state_dir(), &name)?)
    }
}

/// Shortens a commit for a message.
pub(crate) fn short_commit(commit: &str) -> &str {
    commit.get(..SHORT_COMMIT_CHARS).unwrap_or(commit)
}
