//! Lands finished work: builds candidates, checks them, moves the target, and sends back what cannot land.
//!
//! Start at [`Lander::land`]. `stack.rs` builds candidates on top of each other, `check.rs` runs checks and remembers
//! their verdicts, `batch.rs` finds what lands and who is to blame, `target.rs` moves the target, `inspect.rs` refuses what
//! must not land, `bounce.rs` says why, `revert.rs` takes back what has landed. `pull_request.rs` lands by pull requests
//! instead, through the programs of forges (`forge.rs`).
//!
//! One lander at a time works on a repository's target. A kill at any point loses nothing: what was merged and not
//! recorded is found by its trailer, what was recorded as queued is built again.

mod batch;
mod bounce;
mod check;
mod forge;
mod inspect;
mod pull_request;
mod revert;
mod stack;
mod target;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicBool,
    time::Duration,
};

use serde::Serialize;
use toft_core::{
    id::LandingId,
    landing::{BounceReason, Landing, LandingState, LandingWait, WorkChanges},
    refusal::Refusal,
    verbs::land::{Begin, ListedLanding, Move, Retarget, Step},
};
use toft_runner::{Network, Sandbox};
use toft_session::{
    error::Error,
    land::{CheckSandbox, LandHow, LandRules},
};
use toft_vcs::{Checkout, RepoLock, landing::LandingRepository, workspace::WorkspaceError};
use toft_work::Work;

/// Maximum number of pairs of finished work that a forecast merges.
const MOST_PAIRS: usize = 2_000;
/// How often a lander that waits for another one looks again.
const LOOK: Duration = Duration::from_millis(200);

/// What a lander does, as it happens.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum LandEvent {
    /// Another lander works on this target; this one waits.
    Waiting { target: String },
    /// The check runs on candidates with this many landings.
    Checking { count: usize, landings: Vec<String> },
    /// A check ended.
    Checked { passed: bool, ms: u64, landings: Vec<String> },
    /// Work is in the target.
    Landed { landing: Box<Landing> },
    /// Work has a pull request.
    Proposed { landing: Box<Landing> },
    /// Work was sent back.
    Bounced { landing: Box<Landing>, reason: BounceReason, message: String },
    /// Something that a person should know.
    Note { text: String },
}

/// What a lander has done.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LandSummary {
    pub landed: Vec<Landing>,
    pub bounced: Vec<Landing>,
    /// Work that was pushed to a pull request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proposed: Vec<Landing>,
    /// Work that has not landed, and why.
    pub waiting: Vec<ListedLanding>,
    /// Number of checks that ran.
    pub checks: usize,
    /// What a person should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The target does not pass the check without any of this work: nothing lands before it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub red: Option<String>,
    /// What was named, if nothing of it can land.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<ListedLanding>,
    /// Why nothing lands in a target now: it is not there, or its remote does not answer or refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
    /// No check is configured.
    pub unchecked: bool,
    /// Checkouts that were updated.
    pub updated: Vec<UpdatedCheckout>,
    /// A target that is checked out and was not updated, with the command that takes the result up.
    pub take_up: Vec<TakeUp>,
}

/// A checkout that was moved to the newest commit of its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpdatedCheckout {
    pub target: String,
    pub dir: String,
    pub commit: String,
}

/// A result that waits for its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TakeUp {
    pub target: String,
    /// The checkout that has the target checked out.
    pub dir: String,
    pub why: String,
    /// The command that takes it up, in that checkout.
    pub command: String,
}

/// What is known of work before it is landed.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    #[serde(flatten)]
    pub entry: ListedLanding,
    /// The files that conflict with the target as it is now, or with work that lands before it; empty if it merges.
    pub conflicts: Vec<String>,
    /// The work that lands before it and that it conflicts with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<LandingId>,
}

/// How much finished work has not landed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unlanded {
    /// Finished, and not landed.
    pub finished: usize,
    /// Of these, what merges into its target as it is now.
    pub clean: usize,
    /// Of these, what conflicts with its target.
    pub conflict: usize,
    /// Of these, what a reviewer has to approve.
    pub review: usize,
    /// Of these, what has an open pull request.
    pub proposed: usize,
    /// Sent back to an agent.
    pub bounced: usize,
    /// Of these, what a person is asked about first.
    pub asks: usize,
    /// Targets that do not pass the check: nothing lands in them before they do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub red: Vec<String>,
    /// Results that wait for their target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub take_up: Vec<TakeUp>,
}

impl Unlanded {
    /// One line for people; none if everything has landed.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let Self { finished, clean, conflict, review, proposed, bounced, asks, .. } = self;
        let rows = [(clean, "clean"), (conflict, "conflict"), (review, "to review"), (proposed, "in pull requests")];
        let rows: Vec<String> =
            rows.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        let rows = if rows.is_empty() { String::new() } else { format!(": {}", rows.join(", ")) };
        let back = match (bounced, asks) {
            (0, _) => String::new(),
            (_, 0) => format!("{bounced} sent back"),
            _ => format!("{bounced} sent back, {asks} of it with a question to you"),
        };
        match (*finished, back.is_empty()) {
            (0, true) => None,
            (0, false) => Some(back),
            (_, true) => Some(format!("{finished} finished, not landed{rows}")),
            (_, false) => Some(format!("{finished} finished, not landed{rows}; {back}")),
        }
    }
}

/// Lands the work of one repository.
pub struct Lander<'w> {
    work: Work<'w>,
    checkout: &'w Checkout,
    repository: LandingRepository,
    rules: &'w LandRules,
    /// The caller asked for it in this checkout, so the target may be updated here.
    asked_here: bool,
    /// What checks may do, if not everything.
    sandbox: Option<Sandbox>,
    /// Becomes true when it has to stop.
    stop: Option<&'w AtomicBool>,
    /// The commit that was looked at.
    seen: Option<String>,
}

/// What a lander has done so far, and whom it tells.
struct Journal<'a> {
    summary: LandSummary,
    /// How often the check failed on a tree since it began: older failures may have had other reasons.
    failed: BTreeMap<String, usize>,
    /// A check has passed since it began.
    passed: bool,
    /// The target that it works on.
    target: String,
    /// Work that waits for the fix of other work.
    held: BTreeMap<LandingId, LandingId>,
    say: &'a mut dyn FnMut(&LandEvent),
}

impl Journal<'_> {
    fn say(&mut self, event: &LandEvent) {
        (self.say)(event);
    }

    /// Tells what a person should know.
    fn note(&mut self, text: String) {
        self.say(&LandEvent::Note { text: text.clone() });
        self.summary.notes.push(text);
    }

    /// Tells why nothing lands in a target now.
    fn block(&mut self, why: String) {
        self.say(&LandEvent::Note { text: why.clone() });
        self.summary.blocked.push(why);
    }

    /// What has landed stays landed: a step after it that failed is only told.
    fn note_failure(&mut self, done: Result<(), Error>) {
        if let Err(error) = done {
            self.note(error.to_string());
        }
    }
}

/// A round of a lander.
enum LandRound {
    /// Something changed; there may be more to do.
    Again,
    /// Nothing can land now.
    Over,
}

impl<'w> Lander<'w> {
    /// A lander for the repository of a session. `asked_here` says that a person asked for it in this checkout.
    pub fn of(work: Work<'w>, asked_here: bool) -> Result<Self, Error> {
        let located = work.session().located();
        let nowhere = || Error::NoRepository { dir: located.dir.clone() };
        let checkout = located.checkout.as_ref().ok_or_else(nowhere)?;
        let repository = LandingRepository::open(checkout, &located.land.union, located.land.pushed())?;
        let sandbox = match located.land.sandbox {
            CheckSandbox::None => None,
            CheckSandbox::Files => Some(Sandbox::default()),
            CheckSandbox::Offline => Some(Sandbox { network: Network::Closed, ..Sandbox::default() }),
        };
        Ok(Self { work, checkout, repository, rules: &located.land, asked_here, sandbox, stop: None, seen: None })
    }

    /// The same lander, whose checks run in this sandbox if there is one: they run what agents wrote.
    #[must_use]
    pub fn confined_by(mut self, sandbox: Option<Sandbox>) -> Self {
        self.sandbox = sandbox.or(self.sandbox);
        self
    }

    /// The same lander, which lands nothing but the commit that was looked at.
    #[must_use]
    pub fn only_as_seen(mut self, commit: Option<String>) -> Self {
        self.seen = commit;
        self
    }

    fn is_as_seen(&self, landing: &Landing) -> Result<bool, Refusal> {
        self.seen.as_ref().map_or(Ok(true), |seen| landing.is_at(seen))
    }

    /// Finished work that is named; what was finished again since it was looked at is refused.
    fn named(&self, ids: &[String]) -> Result<Vec<ListedLanding>, Error> {
        let named = self.work.landings(ids, 0)?;
        for ListedLanding { landing, .. } in &named {
            if !self.is_as_seen(landing)? {
                let (id, tip) = (landing.id.to_string(), &landing.offer.tip);
                let state = format!("finished as another commit, {}", tip.get(..12).unwrap_or(tip));
                return Err(
                    Refusal::WrongState { id, state, wanted: "look at it again: toft land -n".to_owned() }.into()
                );
            }
        }
        Ok(named)
    }

    /// Work that is queued for a target.
    pub(crate) fn queued(&self, target: &str, ids: &[String]) -> Result<Vec<ListedLanding>, Error> {
        let mut queued = Vec::new();
        for entry in self.work.landings(ids, 0)? {
            let ListedLanding { landing, .. } = &entry;
            let waits = landing.offer.target == target && landing.state == LandingState::Queued;
            if waits && self.is_as_seen(landing)? {
                queued.push(entry);
            }
        }
        Ok(queued)
    }

    /// The same lander, which stops as soon as `stop` is true.
    #[must_use]
    pub fn until(mut self, stop: &'w AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Whether no other lander is at work on any target of queued work.
    pub fn is_free(&self) -> Result<bool, Error> {
        for entry in self.work.landings(&[], 0)? {
            let name = lock_name(&entry.landing.offer.target);
            if entry.landing.state == LandingState::Queued
                && RepoLock::attempt(&self.checkout.state_dir(), &name)?.is_none()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What would land, in which order, and what is known to conflict.
    pub fn forecast(&self, ids: &[String]) -> Result<Vec<Forecast>, Error> {
        let entries = self.named(ids)?;
        let mut forecast: Vec<Forecast> =
            entries.into_iter().map(|entry| Forecast { entry, conflicts: Vec::new(), against: None }).collect();
        let targets: BTreeSet<String> = forecast.iter().map(|known| known.entry.landing.offer.target.clone()).collect();
        for target in targets {
            let Some((newest, _)) = self.repository.newest(&target)? else { continue };
            let here = |known: &&mut Forecast| {
                let landing = &known.entry.landing;
                landing.offer.target == target && landing.state == LandingState::Queued && !known.entry.elsewhere
            };
            let mut asked: Vec<&mut Forecast> = forecast.iter_mut().filter(here).collect();
            let tips: Vec<String> = asked.iter().map(|known| known.entry.landing.offer.tip.clone()).collect();
            let pairs: Vec<(String, String)> = tips.iter().map(|tip| (newest.clone(), tip.clone())).collect();
            for (known, files) in asked.iter_mut().zip(self.repository.forecast(&pairs)?) {
                known.conflicts = files.unwrap_or_default();
            }
            self.forecast_among(&newest, &tips, &mut asked)?;
        }
        Ok(forecast)
    }

    /// Which work conflicts with work that lands before it. Work that changes no common file does not.
    fn forecast_among(&self, newest: &str, tips: &[String], asked: &mut [&mut Forecast]) -> Result<(), Error> {
        let changed = self.repository.changes(newest, tips)?;
        let mut first: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for (later, WorkChanges { files, .. }) in changed.iter().enumerate() {
            if !asked[later].conflicts.is_empty() {
                continue;
            }
            let mut earlier: BTreeSet<usize> = BTreeSet::new();
            for file in files.iter().filter(|file| !self.keeps_both(file)) {
                let known = first.entry(file.as_str()).or_default();
                earlier.extend(known.iter().copied());
                known.push(later);
            }
            pairs.extend(earlier.into_iter().map(|earlier| (earlier, later)));
        }
        pairs.truncate(MOST_PAIRS);
        let tips: Vec<(String, String)> =
            pairs.iter().map(|(one, other)| (tips[*one].clone(), tips[*other].clone())).collect();
        for ((earlier, later), files) in pairs.iter().zip(self.repository.forecast(&tips)?) {
            if let Some(files) = files.filter(|_| asked[*later].conflicts.is_empty()) {
                asked[*later].against = Some(asked[*earlier].entry.landing.id.clone());
                asked[*later].conflicts = files;
            }
        }
        Ok(())
    }

    /// Whether both sides of a conflict in this file are kept.
    fn keeps_both(&self, file: &str) -> bool {
        let name = file.rsplit('/').next().unwrap_or(file);
        self.rules.union.iter().any(|pattern| match pattern.split_once('*') {
            // As git: without a slash, the name counts.
            Some((before, after)) => {
                let text = if pattern.contains('/') { file } else { name };
                let inner = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                inner.is_some_and(|inner| !inner.contains('/'))
            }
            None => pattern == file || pattern == name,
        })
    }

    /// How much finished work has not landed.
    pub fn unlanded(&self) -> Result<Unlanded, Error> {
        let (mut unlanded, mut queued) = (Unlanded::default(), BTreeSet::new());
        for known in self.forecast(&[])? {
            match known.entry.landing.state {
                LandingState::Bounced => {
                    unlanded.bounced += 1;
                    unlanded.asks += usize::from(!known.entry.mending);
                }
                LandingState::Queued => {
                    unlanded.finished += 1;
                    queued.insert(known.entry.landing.offer.target);
                    match known.entry.waits {
                        Some(LandingWait::Elsewhere { .. }) => {}
                        _ if !known.conflicts.is_empty() => unlanded.conflict += 1,
                        Some(LandingWait::Review) => unlanded.review += 1,
                        Some(LandingWait::PullRequest { .. }) => unlanded.proposed += 1,
                        _ => unlanded.clean += 1,
                    }
                }
                LandingState::Landed | LandingState::Withdrawn => {}
            }
        }
        for target in queued {
            if self.is_known_red(&target)? {
                unlanded.red.push(target);
            }
        }
        for target in self.waiting_targets(&BTreeSet::new())? {
            unlanded.take_up.extend(self.waits_for_checkout(&target)?);
        }
        Ok(unlanded)
    }

    /// Lands finished work: what is named, or everything that is ready. Work that was withdrawn is queued again if it is named.
    pub fn land(&self, ids: &[String], say: &mut dyn FnMut(&LandEvent)) -> Result<LandSummary, Error> {
        let repository = self.work.session().located().repository.as_ref().map(ToString::to_string).unwrap_or_default();
        self.rules.check.require_trust("checking what lands", &repository)?;
        for entry in self.named(ids)?.iter().filter(|_| !ids.is_empty()) {
            if entry.landing.state == LandingState::Withdrawn {
                let id = entry.landing.id.to_string();
                self.work.act(self.actor(), None, Move { id, to: Step::Queue, reason: String::new() })?;
            }
        }
        let summary = LandSummary { unchecked: self.rules.check.commands.is_empty(), ..LandSummary::default() };
        self.work.act(self.actor(), None, Begin {})?;
        let mut journal = Journal {
            summary,
            failed: BTreeMap::new(),
            passed: false,
            target: String::new(),
            held: BTreeMap::new(),
            say,
        };
        for why in self.work.take_sent_work(ids)? {
            journal.note(why);
        }
        self.retarget(ids)?;
        let mut done = BTreeSet::new();
        while let Some(target) = self.next_target(ids, &done)? {
            let lock = self.lock(&target, &mut journal)?;
            journal.target.clone_from(&target);
            let known = self.repository.remote_branch(&target).is_some() || self.repository.commit(&target)?.is_some();
            if !known {
                let published = self.rules.pushed().is_none() && self.repository.names_remote(&target)?;
                journal.block(match published {
                    true => format!(
                        "{target} is a branch of a remote: only `into` in your own configuration or in \
                         .git/toft/config.toml lets work be pushed there"
                    ),
                    false => format!("there is no branch {target} here; `into` in [land] names the one to land in"),
                });
                done.insert(target);
                continue;
            }
            self.work_on(&target, ids, &mut journal)?;
            let taken_up = self.take_up(&target, &mut journal);
            journal.note_failure(taken_up);
            drop(lock);
            done.insert(target);
        }
        for target in self.waiting_targets(&done)? {
            let _lock = self.lock(&target, &mut journal)?;
            journal.target.clone_from(&target);
            self.reunite_all(&target, &mut journal)?;
            let taken_up = self.take_up(&target, &mut journal);
            journal.note_failure(taken_up);
        }
        let unpinned = self.unpin_landed();
        journal.note_failure(unpinned);
        let (all, mut waiting) = (self.work.landings(&[], 0)?, self.work.landings(ids, 0)?);
        waiting.retain(|entry| entry.landing.state == LandingState::Queued);
        for entry in &mut waiting {
            let fix = journal.held.get(&entry.landing.id).cloned();
            let issue = fix.as_ref().and_then(|fix| all.iter().find(|other| other.landing.id == *fix));
            let issue = issue.and_then(|other| other.landing.issue.clone());
            entry.waits = entry.waits.take().or(fix.map(|landing| LandingWait::Fix { landing, issue }));
        }
        journal.summary.waiting = waiting;
        let LandSummary { landed, bounced, waiting, .. } = &journal.summary;
        if !ids.is_empty() && landed.is_empty() && bounced.is_empty() && waiting.is_empty() {
            journal.summary.named = self.work.landings(ids, 0)?;
        }
        Ok(journal.summary)
    }

    /// Lands what is ready for a target, until nothing changes any more.
    fn work_on(&self, target: &str, ids: &[String], journal: &mut Journal<'_>) -> Result<(), Error> {
        loop {
            let round = match self.rules.how {
                LandHow::Pr => self.follow_pull_requests(target, ids, journal),
                _ => self.round(target, ids, journal),
            };
            match round {
                Ok(LandRound::Again) => {}
                Ok(LandRound::Over) => return Ok(()),
                Err(Error::Exchange(error)) => {
                    journal.block(format!("nothing more lands in {target} now: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Finished work lands where the configuration says now, not where it said when the work was finished.
    fn retarget(&self, ids: &[String]) -> Result<(), Error> {
        let Some(into) = &self.rules.into else { return Ok(()) };
        for ListedLanding { landing, elsewhere, .. } in self.work.landings(ids, 0)? {
            // A revert belongs to the target that has what it takes back.
            let here = !elsewhere && landing.reverts.is_none();
            if here && landing.state == LandingState::Queued && landing.offer.target != *into {
                let request = Retarget { landing: landing.id, target: into.clone() };
                self.work.act(self.actor(), None, request)?;
            }
        }
        Ok(())
    }

    fn actor(&self) -> &str {
        &self.work.session().located().agent
    }

    /// The target of work that may land and that was not looked at yet.
    fn next_target(&self, ids: &[String], done: &BTreeSet<String>) -> Result<Option<String>, Error> {
        let entries = self.work.landings(ids, 0)?;
        let mut targets = entries.into_iter().filter(|entry| entry.landing.state == LandingState::Queued);
        Ok(targets.by_ref().map(|entry| entry.landing.offer.target).find(|target| !done.contains(target)))
    }

    /// Waits until no other lander works on this target.
    fn lock(&self, target: &str, journal: &mut Journal<'_>) -> Result<RepoLock, Error> {
        let name = lock_name(target);
        let mut said = false;
        loop {
            if let Some(lock) = RepoLock::attempt(&self.checkout.state_dir(), &name)? {
                return Ok(lock);
            }
            if !said {
                journal.say(&LandEvent::Waiting { target: target.to_owned() });
                said = true;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The name of the lock of a target.
fn lock_name(target: &str) -> String {
    format!("land-{}", target.replace('/', "%"))
}

/// A target that does not exist in this clone.
fn no_target(target: &str) -> Error {
    WorkspaceError::NoBase { text: target.to_owned() }.into()
}
