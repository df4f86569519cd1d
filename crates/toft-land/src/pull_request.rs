//! Lands by pull requests: pushes finished work to a branch, opens a pull request, and follows what the forge says of it.

use toft_core::{
    id::LandingId,
    issue::private::Private,
    landing::{Landing, PullRequest, PullRequestFacts, PullRequestState, PullRequestVerdict},
    verbs::land::{ListedLanding, RecordPullRequest},
};
use toft_session::error::Error;
use toft_vcs::landing::{Merged, RemoteBranch};

use crate::{
    Lander,
    bounce::BounceNotice,
    check::{CheckOutcome, CheckRequest},
    forge::{Forge, NewPullRequest},
    report::LandEvent,
    repository::{CandidateSpec, MergeRepository as _},
    run::{LandRun, RoundOutcome},
};

/// The most characters of an issue that become the text of its pull request.
const MAX_BODY_CHARS: usize = 20_000;

/// What is done with finished work that has no pull request yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProposalDecision {
    Propose,
    SentBack,
    /// The target fails the check by itself: nothing is proposed before that is fixed.
    TargetFails,
}

/// Where the branch of a pull request is pushed.
struct RequestBranch {
    remote: String,
    branch: String,
    /// The branch as the forge names it, with its owner if it is in a fork.
    head: String,
    /// The commit that toft pushed there last; empty if none.
    pushed_tip: String,
}

impl Lander<'_> {
    /// Follows every open pull request of a target, then opens those of finished work that has none.
    pub(crate) fn follow_pull_requests(
        &self,
        target: &str,
        ids: &[String],
        run: &mut LandRun<'_>,
    ) -> Result<RoundOutcome, Error> {
        let Some(remote) = self.repository.remote_branch(target).cloned() else {
            run.add_blocker(format!("{target} is no branch of a remote; `into = \"origin/main\"` in [land] names one"));
            return Ok(RoundOutcome::Settled);
        };
        self.repository.refresh(target)?;
        let base = self.require_tip(target)?.base;
        let forge = Forge::from_remote_url(&remote.url, self.rules.forge)?;
        for ListedLanding { landing, .. } in &self.queued_landings(target, ids)? {
            if let Some(request) = &landing.pull_request {
                let facts = forge.pull_request_facts(request.number).map_err(Error::from);
                let followed = facts.and_then(|facts| self.apply_facts(landing, &facts, &base, run));
                block_on_exchange_error(followed, landing, run)?;
            }
        }

        // What was just sent back or landed is not in the queue any more.
        let mut queued = self.queued_landings(target, ids)?;
        queued.retain(|entry| entry.waits.is_none());
        let (private, landed_tips) = (self.work.private_issues()?, self.landed_tips(target)?);
        for ListedLanding { landing, .. } in &queued {
            if let Some(why) = self.unpushed_start(landing, &base, &landed_tips)? {
                run.add_blocker(why);
                continue;
            }
            match self.decide_proposal(landing, &base, run)? {
                ProposalDecision::TargetFails => break,
                ProposalDecision::SentBack => {}
                ProposalDecision::Propose => {
                    // A check takes minutes: what was returned or withdrawn while it ran is not published.
                    if self.is_still_queued(landing)? {
                        let proposed = self.propose(&forge, &remote, landing, &private, run);
                        block_on_exchange_error(proposed, landing, run)?;
                    }
                }
            }
        }
        Ok(RoundOutcome::Settled)
    }

    /// Does what follows from what the forge says of a pull request.
    fn apply_facts(
        &self,
        landing: &Landing,
        facts: &PullRequestFacts,
        base: &str,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let pushed_tip = landing.pull_request.as_ref().map_or("", |request| request.tip.as_str());
        match facts.verdict(&landing.offer.tip, pushed_tip) {
            PullRequestVerdict::Landed { commit } => {
                // A forge may not say which commit its merge made.
                let commit = if commit.is_empty() { base } else { &commit };
                self.record_merged_request(landing, commit, run)
            }
            PullRequestVerdict::Bounced { reason, message, files, asks } => {
                let notice = BounceNotice { reason, message, files, asks_person: asks };
                self.bounce(landing, base, notice, run)
            }
            PullRequestVerdict::Outdated | PullRequestVerdict::Waits => {
                // The target may have moved on since the request was opened.
                let pair = (base.to_owned(), landing.offer.tip.clone());
                match self.repository.conflicts_of(&[pair])?.pop().flatten() {
                    Some(files) => self.bounce_conflict(landing, base, files, run),
                    None => Ok(()),
                }
            }
        }
    }

    /// Decides whether work may be proposed: it merges, passes the check, and contains nothing that must not land.
    fn decide_proposal(&self, landing: &Landing, base: &str, run: &mut LandRun<'_>) -> Result<ProposalDecision, Error> {
        let tip = &landing.offer.tip;
        let changes = self.repository.work_changes(base, std::slice::from_ref(tip))?.remove(0);
        let reverted = self.reverted_work(&landing.offer.target)?;
        if let Some(why) = self.policy_violation(landing, &changes, base, &reverted)? {
            self.bounce(landing, base, BounceNotice::policy(why), run)?;
            return Ok(ProposalDecision::SentBack);
        }
        let spec = CandidateSpec::merge(&changes.subject);
        let candidate = match self.repository.build_candidate(base, tip, &spec)? {
            Merged::Clean(candidate) => candidate,
            Merged::Nothing => return Ok(ProposalDecision::Propose),
            Merged::Conflict(files) => {
                self.bounce_conflict(landing, base, files, run)?;
                return Ok(ProposalDecision::SentBack);
            }
        };
        if self.rules.check.commands.is_empty() {
            return Ok(ProposalDecision::Propose);
        }
        let request = CheckRequest { candidate: &candidate, landings: vec![landing.id.to_string()] };
        let CheckOutcome::Failed(failure) = self.check_candidate(&request, true, run)? else {
            return Ok(ProposalDecision::Propose);
        };
        // Nobody is blamed for a target that fails without them.
        let target = self.candidate_at(base)?;
        if let CheckOutcome::Failed(red) = self.check_candidate(&CheckRequest::of_target(&target), true, run)? {
            run.summary.red = Some(red);
            return Ok(ProposalDecision::TargetFails);
        }
        self.bounce(landing, base, BounceNotice::failed_check(failure), run)?;
        Ok(ProposalDecision::SentBack)
    }

    /// Pushes the branch of a piece of work, and opens its pull request if none is open.
    fn propose(
        &self,
        forge: &Forge,
        base: &RemoteBranch,
        landing: &Landing,
        private: &Private,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let tip = &landing.offer.tip;
        let open = self.open_request(forge, landing)?;
        let RequestBranch { remote, branch, head, pushed_tip } = self.request_branch(base, landing, open, private)?;
        // Asked before the push, so that a forge that does not answer leaves no branch behind.
        let existing = match open {
            Some(open) => Some((open.number, open.url.clone())),
            None => forge.find_open_pull_request(&head, &base.branch)?,
        };
        self.repository.push_branch(&remote, &branch, tip, &pushed_tip)?;
        let (number, url) = match existing {
            Some(existing) => existing,
            None => {
                let (title, body) = self.request_text(landing, private)?;
                let new = NewPullRequest { head: &head, base: &base.branch, title: &title, body: &body };
                forge.open_pull_request(&new)?
            }
        };
        let pull_request = PullRequest { number, url, remote, branch, tip: tip.clone() };
        let request = RecordPullRequest { landing: landing.id.clone(), pull_request };
        let landing = self.work.act(self.agent_name(), None, request)?;
        run.report(&LandEvent::Proposed { landing: Box::new(landing.clone()) });
        run.summary.proposed.push(landing);
        Ok(())
    }

    /// Returns the pull request of an earlier tip, if the forge still has it open.
    fn open_request<'l>(&self, forge: &Forge, landing: &'l Landing) -> Result<Option<&'l PullRequest>, Error> {
        let Some(request) = landing.pull_request.as_deref() else { return Ok(None) };
        let state = forge.pull_request_facts(request.number)?.state;
        Ok((state == PullRequestState::Open).then_some(request))
    }

    /// Decides where to push: where the open request is, or the fork or remote of the rules.
    fn request_branch(
        &self,
        base: &RemoteBranch,
        landing: &Landing,
        open: Option<&PullRequest>,
        private: &Private,
    ) -> Result<RequestBranch, Error> {
        let remote = match open {
            Some(open) => &open.remote,
            None => self.rules.fork.as_ref().unwrap_or(&base.remote),
        };
        let branch = open.map_or_else(|| branch_name(landing, private), |open| open.branch.clone());
        let last_push = landing.pull_request.as_ref().filter(|last| last.remote == *remote && last.branch == branch);
        let pushed_tip = last_push.map_or_else(String::new, |last| last.tip.clone());
        let head = match *remote == base.remote {
            true => branch.clone(),
            false => {
                let fork = Forge::from_remote_url(&self.repository.url_of(remote)?, self.rules.forge)?;
                format!("{}:{branch}", fork.project_owner())
            }
        };
        Ok(RequestBranch { remote: remote.clone(), branch, head, pushed_tip })
    }

    /// Returns title and text of a pull request: those of the issue, or the commit's subject if the issue is private.
    fn request_text(&self, landing: &Landing, private: &Private) -> Result<(String, String), Error> {
        let subject = self.repository.subject(&landing.offer.tip)?;
        let issue = landing.public_issue(private);
        let text = issue.map(|issue| self.work.text_of_issue(issue)).transpose()?.flatten();
        let Some((title, body)) = text else { return Ok((subject, String::new())) };
        // A public issue may still quote a private one. The commit was searched when it was checked against the policy.
        Ok(match private.look(&format!("{title}\n{body}")).is_empty() {
            true => (title, body.chars().take(MAX_BODY_CHARS).collect()),
            false => (subject, String::new()),
        })
    }

    fn bounce_conflict(
        &self,
        landing: &Landing,
        base: &str,
        files: Vec<String>,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        self.bounce(landing, base, BounceNotice::conflict(&landing.offer.target, files), run)
    }
}

/// Returns the branch of new work: that of its workspace, unless its name would publish a private issue.
fn branch_name(landing: &Landing, private: &Private) -> String {
    let is_private = landing.issue.is_some() && landing.public_issue(private).is_none();
    match &landing.offer.branch {
        Some(branch) if !is_private && private.ids_in(branch).next().is_none() => branch.clone(),
        _ => format!("work/{}", landing.id.as_str().trim_start_matches(LandingId::PREFIX)),
    }
}

/// Turns the failure of one pull request into a blocker: it keeps nobody else from theirs.
fn block_on_exchange_error(step: Result<(), Error>, landing: &Landing, run: &mut LandRun<'_>) -> Result<(), Error> {
    match step {
        Err(Error::Exchange(error)) => {
            let name = landing.issue.as_deref().unwrap_or(landing.id.as_str());
            run.add_blocker(format!("{name} does not land now: {error}"));
            Ok(())
        }
        step => step,
    }
}

#[cfg(test)]
mod tests {
    use toft_core::landing::LandingOffer;

    use super::*;
    use crate::fake_repository::landing;

    #[test]
    fn branch_of_private_work_does_not_name_its_issue() {
        let mut work = landing("1");
        work.offer = LandingOffer { branch: Some("tf-a1-cart".into()), ..work.offer };
        work.issue = Some("tf-a1".into());
        assert_eq!(branch_name(&work, &Private::default()), "tf-a1-cart");
        work.offer.private = true;
        assert_eq!(branch_name(&work, &Private::default()), "work/1");
    }
}
