//! Lands by pull requests: pushes finished work to a branch, opens a pull request for it, and follows what the forge says.

use toft_core::{
    issue::private::Private,
    landing::{BounceReason, Landing, PullRequest, PullRequestFacts, PullRequestState, PullRequestVerdict},
    verbs::land::{LandedWork, ListedLanding, RecordPullRequest},
};
use toft_session::error::Error;
use toft_vcs::{
    exchange::ExchangeError,
    landing::{CandidateCommit, MergeWay, Merged, RemoteBranch},
};

use crate::{
    Journal, LandEvent, LandRound, Lander,
    bounce::WhyBounced,
    check::ToCheck,
    forge::{Forge, NewPullRequest},
    no_target,
};

/// Maximum number of characters of a pull request's text.
const LONGEST_BODY: usize = 20_000;

/// Whether finished work may become a pull request.
enum Proposable {
    Fits,
    /// It was sent back.
    Bounced,
    /// The target fails the check without it.
    RedTarget,
}

/// One pull request that cannot be looked at or pushed keeps nobody else from theirs.
fn told_of(landing: &Landing, done: Result<(), Error>, journal: &mut Journal<'_>) -> Result<(), Error> {
    match done {
        Err(Error::Exchange(error)) => {
            let name = landing.issue.as_deref().unwrap_or(landing.id.as_str());
            journal.block(format!("{name} does not land now: {error}"));
            Ok(())
        }
        done => done,
    }
}

impl Lander<'_> {
    /// Looks at every open pull request of a target, then opens those of finished work that has none.
    pub(crate) fn follow_pull_requests(
        &self,
        target: &str,
        ids: &[String],
        journal: &mut Journal<'_>,
    ) -> Result<LandRound, Error> {
        let Some(base) = self.repository.remote_branch(target).cloned() else {
            journal.block(format!("{target} is no branch of a remote; `into = \"origin/main\"` in [land] names one"));
            return Ok(LandRound::Over);
        };
        self.repository.refresh(target)?;
        let newest = self.repository.newest(target)?.ok_or_else(|| no_target(target))?.0;
        let forge = Forge::of(&base.url, self.rules.forge).map_err(refused)?;
        let entries = self.queued(target, ids)?;
        for ListedLanding { landing, .. } in &entries {
            if let Some(request) = &landing.pull_request {
                let looked = forge.look(request.number).map_err(refused);
                let followed = looked.and_then(|facts| self.follow(landing, &facts, &newest, journal));
                told_of(landing, followed, journal)?;
            }
        }
        let mut entries = self.queued(target, ids)?;
        entries.retain(|entry| entry.waits.is_none());
        let (private, landed) = (self.work.private_issues()?, self.landed_tips(target)?);
        for ListedLanding { landing, .. } in &entries {
            if let Some(why) = self.brings_older_commits(landing, &newest, &landed)? {
                journal.block(why);
                continue;
            }
            match self.may_be_proposed(landing, &newest, journal)? {
                // What was returned or withdrawn while the check ran is not published.
                Proposable::Fits if !self.is_still_queued(landing)? => {}
                Proposable::Fits => {
                    let proposed = self.propose(&forge, &base, landing, &private, journal);
                    told_of(landing, proposed, journal)?;
                }
                Proposable::Bounced => {}
                Proposable::RedTarget => break,
            }
        }
        Ok(LandRound::Over)
    }

    /// Does what follows from what the forge says.
    fn follow(
        &self,
        landing: &Landing,
        facts: &PullRequestFacts,
        newest: &str,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        let pushed = landing.pull_request.as_ref().map_or("", |request| request.tip.as_str());
        match facts.verdict(&landing.offer.tip, pushed) {
            PullRequestVerdict::Landed { commit } => {
                let commit = if commit.is_empty() { newest.to_owned() } else { commit };
                let (landing, tip) = (landing.id.clone(), landing.offer.tip.clone());
                let landed = LandedWork { landing, tip, commit, before: String::new() };
                self.record(vec![landed], "", false, journal)
            }
            PullRequestVerdict::Bounced { reason, message, files, asks } => {
                self.send_back(landing, newest, WhyBounced { reason, message, files, asks }, journal)
            }
            PullRequestVerdict::Outdated | PullRequestVerdict::Waits => {
                // The target may have moved on since.
                let both = (newest.to_owned(), landing.offer.tip.clone());
                match self.repository.forecast(&[both])?.pop().flatten() {
                    Some(files) => self.bounce_conflict(landing, newest, files, journal),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether finished work may become a pull request: it merges, passes the check, and contains nothing private.
    fn may_be_proposed(&self, landing: &Landing, newest: &str, journal: &mut Journal<'_>) -> Result<Proposable, Error> {
        let tip = &landing.offer.tip;
        let changes = self.repository.changes(newest, std::slice::from_ref(tip))?.remove(0);
        if let Some(why) = self.must_not_land(landing, &changes, newest, &self.taken_back(&landing.offer.target)?)? {
            self.bounce(landing, newest, BounceReason::Policy, why, Vec::new(), journal)?;
            return Ok(Proposable::Bounced);
        }
        let candidate = match self.repository.candidate(newest, tip, MergeWay::Merge, &changes.subject, &[])? {
            Merged::Clean(candidate) => candidate,
            Merged::Nothing => return Ok(Proposable::Fits),
            Merged::Conflict(files) => {
                self.bounce_conflict(landing, newest, files, journal)?;
                return Ok(Proposable::Bounced);
            }
        };
        if self.rules.check.commands.is_empty() {
            return Ok(Proposable::Fits);
        }
        let check = ToCheck { candidate: &candidate, landings: vec![landing.id.to_string()] };
        let (passed, why) = self.passes(&check, true, journal)?;
        if passed {
            return Ok(Proposable::Fits);
        }
        // Nobody is blamed for a target that fails without them.
        let before = CandidateCommit { commit: newest.to_owned(), tree: self.repository.tree(newest)? };
        let (green, red) = self.passes(&ToCheck { candidate: &before, landings: Vec::new() }, true, journal)?;
        if !green {
            journal.summary.red = Some(red);
            return Ok(Proposable::RedTarget);
        }
        self.bounce(landing, newest, BounceReason::Check, why, Vec::new(), journal)?;
        Ok(Proposable::Bounced)
    }

    /// Pushes the branch, and opens its pull request if none is open.
    fn propose(
        &self,
        forge: &Forge,
        base: &RemoteBranch,
        landing: &Landing,
        private: &Private,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        let tip = &landing.offer.tip;
        let known = match &landing.pull_request {
            Some(known) => {
                let open = forge.look(known.number).map_err(refused)?.state == PullRequestState::Open;
                Some(known).filter(|_| open)
            }
            None => None,
        };
        let remote =
            known.map_or_else(|| self.rules.fork.as_ref().unwrap_or(&base.remote), |known| &known.remote).clone();
        let is_private = landing.issue.is_some() && landing.public_issue(private).is_none();
        let branch = match (known, &landing.offer.branch) {
            (Some(known), _) => known.branch.clone(),
            (None, Some(branch)) if !is_private && private.ids_in(branch).next().is_none() => branch.clone(),
            (None, _) => format!("work/{}", landing.id.as_str().trim_start_matches("ln_")),
        };
        let pushed = landing.pull_request.as_ref().filter(|last| last.remote == remote && last.branch == branch);
        let was = pushed.map_or("", |last| last.tip.as_str());
        let owner = match remote == base.remote {
            true => None,
            false => Some(Forge::of(&self.repository.url_of(&remote)?, self.rules.forge).map_err(refused)?),
        };
        let head = owner.map_or_else(|| branch.clone(), |fork| format!("{}:{branch}", fork.owner()));
        // A forge that does not answer leaves no branch behind.
        let open = match known {
            Some(known) => Some((known.number, known.url.clone())),
            None => forge.opened(&head, &base.branch).map_err(refused)?,
        };
        self.repository.push_branch(&remote, &branch, tip, was)?;
        let (number, url) = match open {
            Some(open) => open,
            None => {
                let (title, body) = self.text_of(landing, private)?;
                let new = NewPullRequest { head: &head, base: &base.branch, title: &title, body: &body };
                forge.open(&new).map_err(refused)?
            }
        };
        let pull_request = PullRequest { number, url, remote, branch, tip: tip.clone() };
        let landing = landing.id.clone();
        let landing = self.work.act(self.actor(), None, RecordPullRequest { landing, pull_request })?;
        journal.say(&LandEvent::Proposed { landing: Box::new(landing.clone()) });
        journal.summary.proposed.push(landing);
        Ok(())
    }

    /// Title and text of a pull request: those of the issue, or of the commit if the issue is private.
    fn text_of(&self, landing: &Landing, private: &Private) -> Result<(String, String), Error> {
        let subject = self.repository.subject(&landing.offer.tip)?;
        let text = landing.public_issue(private).map(|issue| self.work.text_of_issue(issue)).transpose()?.flatten();
        let (title, body) = text.unwrap_or_else(|| (subject.clone(), String::new()));
        // What looks private is not sent; the commit itself was looked through before.
        match private.look(&format!("{title}\n{body}")).is_empty() {
            true => Ok((title, body.chars().take(LONGEST_BODY).collect())),
            false => Ok((subject, String::new())),
        }
    }
}

/// A forge that does not do what it is asked for.
fn refused(why: String) -> Error {
    ExchangeError::Conflict(why).into()
}
