//! Candidates on top of each other: each is the target with one more piece of work.

use toft_core::{
    issue::private::Private,
    landing::{BounceReason, Landing, LandingState, waits_for_fix},
    verbs::land::ListedLanding,
};
use toft_session::{error::Error, land::LandHow};
use toft_vcs::{
    RunError,
    landing::{CandidateCommit, MergeWay, Merged, TRAILER},
    workspace::WorkspaceError,
};

use crate::{Journal, Lander};

/// A piece of work and the candidate that has it.
#[derive(Clone, Debug)]
pub(crate) struct Stacked {
    pub(crate) landing: Landing,
    pub(crate) candidate: CandidateCommit,
    /// The commit before it.
    pub(crate) before: String,
}

/// Candidates that were built, and whether something else changed on the way.
#[derive(Default)]
pub(crate) struct CandidateStack {
    pub(crate) stacked: Vec<Stacked>,
    /// Work was recorded as landed, or sent back.
    pub(crate) changed: bool,
}

impl Lander<'_> {
    /// Builds up to `most` candidates on `base`. What conflicts or must not land is sent back.
    pub(crate) fn stack(
        &self,
        base: &str,
        entries: &[ListedLanding],
        all: &[ListedLanding],
        most: usize,
        journal: &mut Journal<'_>,
    ) -> Result<CandidateStack, Error> {
        let mut stack = CandidateStack::default();
        let base_tree = self.repository.tree(base)?;
        let tips: Vec<String> = entries.iter().map(|entry| entry.landing.offer.tip.clone()).collect();
        let changes = self.repository.changes(base, &tips)?;
        let private = self.work.private_issues()?;
        let (landed, taken_back) = (self.landed_tips(&journal.target)?, self.taken_back(&journal.target)?);
        for (ListedLanding { landing, .. }, changes) in entries.iter().zip(&changes) {
            if stack.stacked.len() >= most {
                break;
            }
            if let Some(why) = self.must_not_land(landing, changes, base, &taken_back)? {
                self.bounce(landing, base, BounceReason::Policy, why, Vec::new(), journal)?;
                stack.changed = true;
                continue;
            }
            if let Some(why) = self.brings_older_commits(landing, base, &landed)? {
                if !journal.summary.blocked.contains(&why) {
                    journal.block(why);
                }
                continue;
            }
            let top = stack.stacked.last().map(|top| top.candidate.clone());
            let top = top.unwrap_or_else(|| CandidateCommit { commit: base.to_owned(), tree: base_tree.clone() });
            let bounced = || {
                let bounced = all.iter().filter(|entry| entry.landing.state == LandingState::Bounced);
                let sent = journal.summary.bounced.iter().map(|landing| (landing, false));
                let bounced = bounced.filter(|entry| entry.mending);
                bounced.map(|entry| (&entry.landing, entry.held)).chain(sent).collect::<Vec<_>>()
            };
            let merged = match self.candidate(&top.commit, landing, &changes.subject, &private) {
                // One piece of work that cannot be merged does not stop the others.
                Err(Error::Workspace(error @ WorkspaceError::Run(RunError::Failed { .. }))) => {
                    let why = format!("It cannot be merged: {error}");
                    self.bounce(landing, base, BounceReason::Policy, why, Vec::new(), journal)?;
                    stack.changed = true;
                    continue;
                }
                merged => merged?,
            };
            let changed: Vec<String> = changes.files.iter().cloned().collect();
            match merged {
                Merged::Clean(candidate) if candidate.tree == top.tree => {
                    // Its change is in the target, however it got there.
                    if stack.stacked.is_empty() {
                        self.record_landed(landing, &top, false, journal)?;
                        stack.changed = true;
                    }
                }
                Merged::Nothing => {
                    if stack.stacked.is_empty() {
                        self.record_landed(landing, &top, false, journal)?;
                        stack.changed = true;
                    }
                }
                Merged::Clean(_) if let Some(fix) = waits_for_fix(landing, &changed, true, bounced()) => {
                    journal.held.insert(landing.id.clone(), fix);
                }
                Merged::Clean(candidate) => {
                    let before = top.commit.clone();
                    stack.stacked.push(Stacked { landing: landing.clone(), candidate, before });
                }
                Merged::Conflict(files) if let Some(fix) = waits_for_fix(landing, &files, false, bounced()) => {
                    journal.held.insert(landing.id.clone(), fix);
                }
                // It conflicts with work that has not landed yet, and may not.
                Merged::Conflict(_) if !stack.stacked.is_empty() => {}
                Merged::Conflict(files) => {
                    self.bounce_conflict(landing, base, files, journal)?;
                    stack.changed = true;
                }
            }
        }
        Ok(stack)
    }

    /// The candidate that has a piece of work on top of a commit.
    fn candidate(&self, onto: &str, landing: &Landing, subject: &str, private: &Private) -> Result<Merged, Error> {
        let tip = &landing.offer.tip;
        let (way, subject) = match self.rules.how {
            LandHow::Merge | LandHow::Pr if landing.reverts.is_some() => (MergeWay::Merge, subject.to_owned()),
            LandHow::Merge | LandHow::Pr => (MergeWay::Merge, format!("Merge: {subject}")),
            LandHow::Squash => (MergeWay::Squash, subject.to_owned()),
            LandHow::Rebase => (MergeWay::Rebase, subject.to_owned()),
        };
        let mut trailers = Vec::new();
        // A commit is published: it names no private plan.
        if let Some(issue) = landing.public_issue(private) {
            trailers.push(("Toft-Issue".to_owned(), issue.clone()));
            trailers.push(("Toft-Agent".to_owned(), landing.author.clone()));
        }
        trailers.push((TRAILER.to_owned(), format!("{} {tip}", landing.id)));
        Ok(self.repository.candidate(onto, tip, way, &subject, &trailers)?)
    }
}
