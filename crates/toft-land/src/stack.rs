//! Candidates on top of each other: each is the target with one more piece of work.

use toft_core::{
    id::LandingId,
    issue::private::Private,
    landing::{Landing, LandingState, WorkChanges, waits_for_fix},
    verbs::land::ListedLanding,
};
use toft_session::{error::Error, land::LandHow};
use toft_vcs::{
    RunError,
    landing::{CandidateCommit, MergeWay, Merged, TRAILER},
    workspace::WorkspaceError,
};

use crate::{
    Lander,
    bounce::BounceNotice,
    repository::{CandidateSpec, MergeRepository},
    run::LandRun,
};

/// A piece of work and the candidate that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StackedCandidate {
    pub(crate) landing: Landing,
    pub(crate) candidate: CandidateCommit,
    /// The commit below it: the candidate before, or the base.
    pub(crate) parent: String,
}

/// Candidates that were built, in the order in which they land.
#[derive(Default)]
pub(crate) struct CandidateStack {
    pub(crate) candidates: Vec<StackedCandidate>,
    /// Whether work was recorded as landed, or sent back, on the way.
    pub(crate) changed: bool,
}

/// What becomes of the next piece of work.
#[derive(Debug, PartialEq, Eq)]
enum Placement {
    /// It goes on top of the stack.
    Stacked(CandidateCommit),
    /// The base has its change already, however it got there.
    Contained,
    /// It goes back to an agent.
    Bounced(BounceNotice),
    /// The fix of this landing, which changes the same files, has to land first.
    WaitsForFix(LandingId),
    /// It conflicts with candidates below it, or adds nothing to them. They may not land, so a later round decides.
    Undecided,
}

/// Where the next piece of work would go.
struct StackTop<'a> {
    candidate: &'a CandidateCommit,
    /// Whether this is the base: nothing below it may still fail to land.
    is_base: bool,
}

/// Decides where a piece of work goes. `fixes` are landings that were sent back, and whether an agent works on them.
fn place_work<'a>(
    repository: &impl MergeRepository,
    landing: &Landing,
    changes: &WorkChanges,
    spec: &CandidateSpec,
    top: &StackTop<'_>,
    fixes: impl IntoIterator<Item = (&'a Landing, bool)>,
) -> Result<Placement, WorkspaceError> {
    let merged = match repository.build_candidate(&top.candidate.commit, &landing.offer.tip, spec) {
        // One piece of work that git cannot merge does not stop the others.
        Err(error @ WorkspaceError::Run(RunError::Failed { .. })) => {
            return Ok(Placement::Bounced(BounceNotice::policy(format!("It cannot be merged: {error}"))));
        }
        merged => merged?,
    };
    Ok(match merged {
        Merged::Clean(candidate) if candidate.tree != top.candidate.tree => {
            let changed: Vec<String> = changes.files.iter().cloned().collect();
            match waits_for_fix(landing, &changed, true, fixes) {
                Some(fix) => Placement::WaitsForFix(fix),
                None => Placement::Stacked(candidate),
            }
        }
        Merged::Clean(_) | Merged::Nothing if top.is_base => Placement::Contained,
        Merged::Clean(_) | Merged::Nothing => Placement::Undecided,
        Merged::Conflict(files) => match waits_for_fix(landing, &files, false, fixes) {
            Some(fix) => Placement::WaitsForFix(fix),
            None if top.is_base => Placement::Bounced(BounceNotice::conflict(&landing.offer.target, files)),
            None => Placement::Undecided,
        },
    })
}

impl Lander<'_> {
    /// Builds up to `limit` candidates on `base`. Work that conflicts or must not land is sent back; `known` is all
    /// work that has not landed.
    pub(crate) fn build_stack(
        &self,
        base: &str,
        queued: &[ListedLanding],
        known: &[ListedLanding],
        limit: usize,
        run: &mut LandRun<'_>,
    ) -> Result<CandidateStack, Error> {
        let mut stack = CandidateStack::default();
        let base = self.candidate_at(base)?;
        let tips: Vec<String> = queued.iter().map(|entry| entry.landing.offer.tip.clone()).collect();
        let changes = self.repository.work_changes(&base.commit, &tips)?;
        let private = self.work.private_issues()?;
        // Both read hundreds of past landings, so they are read once for the whole stack.
        let landed_tips = self.landed_tips(&run.target)?;
        let reverted = self.reverted_work(&run.target)?;
        for (ListedLanding { landing, .. }, changes) in queued.iter().zip(&changes) {
            if stack.candidates.len() >= limit {
                break;
            }
            if let Some(why) = self.policy_violation(landing, changes, &base.commit, &reverted)? {
                self.bounce(landing, &base.commit, BounceNotice::policy(why), run)?;
                stack.changed = true;
                continue;
            }
            if let Some(why) = self.unpushed_start(landing, &base.commit, &landed_tips)? {
                // Every round asks again; a person is told once.
                if !run.summary.blocked.contains(&why) {
                    run.add_blocker(why);
                }
                continue;
            }
            let top = stack.candidates.last().map(|last| last.candidate.clone());
            let top = StackTop { is_base: top.is_none(), candidate: &top.unwrap_or_else(|| base.clone()) };
            let spec = self.candidate_spec(landing, &changes.subject, &private);
            let fixes = fixes_under_way(known, &run.summary.bounced);
            match place_work(&self.repository, landing, changes, &spec, &top, fixes)? {
                Placement::Stacked(candidate) => {
                    let parent = top.candidate.commit.clone();
                    stack.candidates.push(StackedCandidate { landing: landing.clone(), candidate, parent });
                }
                Placement::Contained => {
                    self.record_contained(landing, &base, false, run)?;
                    stack.changed = true;
                }
                Placement::Bounced(notice) => {
                    self.bounce(landing, &base.commit, notice, run)?;
                    stack.changed = true;
                }
                Placement::WaitsForFix(fix) => {
                    run.waits_for_fix.insert(landing.id.clone(), fix);
                }
                Placement::Undecided => {}
            }
        }
        Ok(stack)
    }

    fn candidate_spec(&self, landing: &Landing, subject: &str, private: &Private) -> CandidateSpec {
        let (way, subject) = match self.rules.how {
            // The subject of a revert says already what it does.
            LandHow::Merge | LandHow::Pr if landing.reverts.is_some() => (MergeWay::Merge, subject.to_owned()),
            LandHow::Merge | LandHow::Pr => (MergeWay::Merge, format!("Merge: {subject}")),
            LandHow::Squash => (MergeWay::Squash, subject.to_owned()),
            LandHow::Rebase => (MergeWay::Rebase, subject.to_owned()),
        };
        let mut trailers = Vec::new();
        // A commit is published: it must not name an issue of a private plan.
        if let Some(issue) = landing.public_issue(private) {
            trailers.push(("Toft-Issue".to_owned(), issue.clone()));
            trailers.push(("Toft-Agent".to_owned(), landing.author.clone()));
        }
        trailers.push((TRAILER.to_owned(), format!("{} {}", landing.id, landing.offer.tip)));
        CandidateSpec { way, subject, trailers }
    }
}

/// Lists the work that agents fix after a bounce: what was sent back before, and in this run, where nobody holds it yet.
fn fixes_under_way<'a>(
    known: &'a [ListedLanding],
    bounced_now: &'a [Landing],
) -> impl Iterator<Item = (&'a Landing, bool)> {
    let before = known
        .iter()
        .filter(|entry| entry.landing.state == LandingState::Bounced && entry.mending)
        .map(|entry| (&entry.landing, entry.held));
    before.chain(bounced_now.iter().map(|landing| (landing, false)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use toft_core::landing::BounceReason;

    use super::*;
    use crate::fake_repository::{FakeRepository, bounced_landing, landing};

    fn changes(files: &[&str]) -> WorkChanges {
        let files: BTreeSet<String> = files.iter().map(|file| (*file).to_owned()).collect();
        WorkChanges { files, ..WorkChanges::default() }
    }

    fn place(
        repository: &FakeRepository,
        top: &CandidateCommit,
        is_base: bool,
        tip: &str,
        fixes: &[(&Landing, bool)],
    ) -> Placement {
        let top = StackTop { candidate: top, is_base };
        let files = repository.files_changed_by(tip);
        let fixes = fixes.iter().copied();
        place_work(repository, &landing(tip), &changes(&files), &CandidateSpec::merge(tip), &top, fixes).unwrap()
    }

    #[test]
    fn clean_work_goes_on_top_of_the_stack() {
        let repository = FakeRepository::new(&[("a", "work-a")]);
        let base = repository.base();
        let placed = place(&repository, &base, true, "work-a", &[]);
        assert!(matches!(placed, Placement::Stacked(candidate) if candidate.commit == "base+work-a"));
    }

    #[test]
    fn conflict_with_the_target_sends_work_back_with_its_files() {
        let repository = FakeRepository::new(&[("a", "work-a")]).with_base_change("a");
        let Placement::Bounced(notice) = place(&repository, &repository.base(), true, "work-a", &[]) else {
            panic!("it was not sent back");
        };
        assert_eq!((notice.reason, notice.files), (BounceReason::Conflict, vec!["a".to_owned()]));
        assert_eq!(notice.message, "It conflicts with main in a.");
    }

    #[test]
    fn conflict_with_an_unlanded_candidate_waits_for_a_later_round() {
        let repository = FakeRepository::new(&[("a", "work-a"), ("a", "work-b")]);
        let Placement::Stacked(first) = place(&repository, &repository.base(), true, "work-a", &[]) else {
            panic!("the first is clean");
        };
        assert_eq!(place(&repository, &first, false, "work-b", &[]), Placement::Undecided);
    }

    #[test]
    fn contained_work_is_not_merged_again() {
        let repository = FakeRepository::new(&[("a", "work-a")]).with_merged("work-a");
        assert_eq!(place(&repository, &repository.base(), true, "work-a", &[]), Placement::Contained);
    }

    #[test]
    fn a_second_conflict_in_a_file_waits_for_the_fix_of_the_first() {
        let repository = FakeRepository::new(&[("a", "work-b")]).with_base_change("a");
        let first = bounced_landing("work-a", &["a"]);
        let placed = place(&repository, &repository.base(), true, "work-b", &[(&first, false)]);
        assert_eq!(placed, Placement::WaitsForFix(first.id));
    }

    #[test]
    fn clean_work_waits_only_while_an_agent_fixes_the_same_file() {
        let repository = FakeRepository::new(&[("a", "work-b")]);
        let base = repository.base();
        let first = bounced_landing("work-a", &["a"]);
        assert!(matches!(place(&repository, &base, true, "work-b", &[(&first, true)]), Placement::WaitsForFix(_)));
        assert!(matches!(place(&repository, &base, true, "work-b", &[(&first, false)]), Placement::Stacked(_)));
    }

    #[test]
    fn work_that_git_cannot_merge_is_sent_back_alone() {
        let repository = FakeRepository::new(&[("a", "work-a")]).with_broken("work-a");
        let Placement::Bounced(notice) = place(&repository, &repository.base(), true, "work-a", &[]) else {
            panic!("it was not sent back");
        };
        assert_eq!(notice.reason, BounceReason::Policy);
    }
}
