//! Landings: finished work on its way into a target branch.
//!
//! A target only moves forward, to a commit whose exact tree passed the check ([`Verdict`]). What cannot land is bounced:
//! its task is open again, with the reason.

mod changes;
mod culprit;
mod pull_request;

pub use changes::WorkChanges;
pub use culprit::{CulpritSearch, CulpritStep};
pub use pull_request::{
    PullRequest, PullRequestComment, PullRequestFacts, PullRequestReview, PullRequestState, PullRequestVerdict,
};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    id::{LandingId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    issue::private::Private,
    refusal::Refusal,
    schema::JsonSchema,
    time::Timestamp,
};

/// Characters of a commit that name it, as git shortens it.
const SHORTEST_COMMIT: usize = 7;

/// One piece of finished work on its way into a target branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Landing {
    /// Stable id; that of a task's work follows from the task.
    pub id: LandingId,
    pub repository: RepositoryId,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// The agent that finished it.
    pub author: String,
    /// Where its commits are.
    #[serde(flatten)]
    pub offer: LandingOffer,
    /// 0 is most urgent.
    pub priority: u8,
    pub state: LandingState,
    /// The approval of its present tip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<WorkApproval>,
    /// The task of the agent that reviews it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_task: Option<TaskId>,
    /// Its pull request, if it lands by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<Box<PullRequest>>,
    /// The landing that it takes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverts: Option<LandingId>,
    /// The landing that took it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_by: Option<LandingId>,
    /// Each time it was sent back, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounces: Vec<Bounce>,
    /// Where it is in the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<LandedAs>,
    pub created: Timestamp,
    /// When it last changed.
    pub updated: Timestamp,
}

/// Commits that are offered for landing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LandingOffer {
    /// The branch that they are to land in, as its clone calls it.
    pub target: String,
    /// The newest commit.
    pub tip: String,
    /// The machine that has them.
    pub host: String,
    /// The repository's directory on that machine.
    pub clone: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commits that its workspaces were made from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<String>,
    /// The server has them, too: any clone can land them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// A clone on another machine than the one that made them lands them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    /// Its issue is of a private plan, which a lander on another machine does not know: nothing that is published names it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// Its issue is closed when it has landed; otherwise it was closed when it was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub closes: bool,
    /// Who has to approve it.
    #[serde(skip_serializing_if = "Reviewer::is_none")]
    pub review: Reviewer,
}

/// Who has to approve work before it lands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reviewer {
    /// Nobody.
    #[default]
    None,
    /// A person.
    Human,
    /// An agent with this capability, or a person.
    Agent(String),
}

impl Reviewer {
    /// Whether nobody has to.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// The approval of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkApproval {
    pub by: String,
    /// The commit that was approved; another one needs another approval.
    pub tip: String,
    pub at: Timestamp,
}

/// How far a landing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LandingState {
    /// Finished, and not landed.
    Queued,
    /// In the target.
    Landed,
    /// Sent back; its task is open again.
    Bounced,
    /// Not to be landed.
    Withdrawn,
}

impl LandingState {
    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Landed => "landed",
            Self::Bounced => "bounced",
            Self::Withdrawn => "withdrawn",
        }
    }

    /// Whether it may still land.
    #[must_use]
    pub fn live(self) -> bool {
        matches!(self, Self::Queued | Self::Bounced)
    }
}

/// Work that was sent back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bounce {
    pub reason: BounceReason,
    pub at: Timestamp,
    /// The commit that was sent back.
    pub tip: String,
    /// The target at that time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// What an agent has to know to mend it.
    pub message: String,
    /// The files that conflict or that the comments are about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Landings that changed these files in the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<LandingId>,
}

/// Why work was sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BounceReason {
    /// It cannot be merged.
    Conflict,
    /// The check failed with it.
    Check,
    /// A reviewer returned it.
    Review,
    /// It contains something that must not land.
    Policy,
}

impl BounceReason {
    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Check => "check",
            Self::Review => "review",
            Self::Policy => "policy",
        }
    }
}

/// How work landed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LandedAs {
    /// The commit of the target that has it.
    pub commit: String,
    /// The commit of the target before it; empty if it was merged without toft.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub before: String,
    pub at: Timestamp,
    pub by: String,
    /// The target's tree passed the check; absent if there was none, or if it was merged without toft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
}

/// The result of a check on one exact tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The tree and a digest of the commands: [`Verdict::key`].
    pub key: String,
    pub repository: RepositoryId,
    pub tree: String,
    /// Every run, oldest first.
    pub runs: Vec<CheckRun>,
}

/// One run of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRun {
    pub passed: bool,
    pub at: Timestamp,
    pub ms: u64,
    /// How it ended, and the end of its output if it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log: String,
}

impl Verdict {
    /// The key of a verdict.
    #[must_use]
    pub fn key(repository: &RepositoryId, tree: &str, check: &str) -> String {
        format!("{repository}/{tree}/{check}")
    }

    /// Whether the tree may be landed: any run passed. One that failed before is [flaky](Self::is_flaky).
    #[must_use]
    pub fn passed(&self) -> bool {
        self.runs.iter().any(|run| run.passed)
    }

    /// Whether the tree is to blame: two runs failed, and none passed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.runs.len() > 1 && !self.passed()
    }

    /// Whether runs on the same tree came to different results.
    #[must_use]
    pub fn is_flaky(&self) -> bool {
        self.passed() && self.runs.iter().any(|run| !run.passed)
    }
}

impl Landing {
    /// The id of a task's work.
    #[must_use]
    pub fn id_of(task: &TaskId) -> LandingId {
        LandingId::known(format!("{}{}", LandingId::PREFIX, task.as_str().trim_start_matches(TaskId::PREFIX)))
    }

    /// The name under which its commits are kept until it has landed.
    #[must_use]
    pub fn pin(&self) -> String {
        self.reverts.as_ref().map_or_else(|| self.id.to_string(), Self::pin_of_revert)
    }

    /// The name under which the commit that takes a landing back is kept.
    #[must_use]
    pub fn pin_of_revert(reverted: &LandingId) -> String {
        format!("revert-{reverted}")
    }

    /// What events about it are about: its issue, or itself.
    #[must_use]
    pub fn entity(&self) -> &str {
        self.issue.as_deref().unwrap_or(self.id.as_str())
    }

    /// Whether a commit that was looked at, whole or its beginning, is its present tip.
    pub fn is_at(&self, commit: &str) -> Result<bool, Refusal> {
        if commit.len() < SHORTEST_COMMIT {
            let problem = format!("a commit is named by at least {SHORTEST_COMMIT} characters");
            return Err(Refusal::Invalid { field: "commit".into(), problem });
        }
        Ok(self.offer.tip.starts_with(commit))
    }

    /// Whether a reviewer still has to approve its present tip.
    #[must_use]
    pub fn needs_review(&self) -> bool {
        let approved = self.approval.as_ref().is_some_and(|approval| approval.tip == self.offer.tip);
        !self.offer.review.is_none() && !approved
    }

    /// Whether it waits to land as it did when it was `known`, and nobody has to approve it.
    #[must_use]
    pub fn is_still(&self, known: &Self) -> bool {
        let queued = self.state == LandingState::Queued && self.offer == known.offer;
        self.id == known.id && queued && !self.needs_review()
    }

    /// Its issue, if what is published may name it. `private` is what this clone knows to be private.
    #[must_use]
    pub fn public_issue(&self, private: &Private) -> Option<&String> {
        self.issue.as_ref().filter(|issue| !self.offer.private && !private.has(issue))
    }

    /// Whether a clone that has got its commit may land it: only one does, unless a person names the work.
    #[must_use]
    pub fn may_be_taken(&self, tip: &str, named: bool) -> bool {
        self.state == LandingState::Queued && self.offer.sent && self.offer.tip == tip && (named || !self.offer.taken)
    }

    /// The pull request that has its present tip.
    #[must_use]
    pub fn open_pull_request(&self) -> Option<&PullRequest> {
        self.pull_request.as_deref().filter(|request| request.tip == self.offer.tip)
    }

    /// Whether another bounce for this reason asks a person. A reviewer may return work as often as it takes, with something
    /// else to say each time.
    #[must_use]
    pub fn asks_after(&self, reason: BounceReason, message: &str) -> bool {
        let again =
            |bounce: &Bounce| bounce.reason == reason && (reason != BounceReason::Review || bounce.message == message);
        self.bounces.iter().any(again)
    }

    /// The last reason why it was sent back, if that still holds.
    #[must_use]
    pub fn bounce(&self) -> Option<&Bounce> {
        self.bounces.last().filter(|_| self.state == LandingState::Bounced)
    }
}

/// The order in which work lands: what is needed first, then priority, then time. Returns positions in `landings`, and the
/// positions of those that wait for each other.
#[must_use]
pub fn order(landings: &[Landing], needs: &BTreeMap<LandingId, Vec<LandingId>>) -> (Vec<usize>, Vec<usize>) {
    let mut left: Vec<usize> = (0..landings.len()).collect();
    left.sort_by(|a, b| {
        let key = |at: &usize| (landings[*at].priority, landings[*at].created, &landings[*at].id);
        key(a).cmp(&key(b))
    });
    let mut waiting: BTreeSet<&LandingId> = landings.iter().map(|landing| &landing.id).collect();
    let mut ordered = Vec::new();
    while let Some(next) = left
        .iter()
        .position(|at| needs.get(&landings[*at].id).is_none_or(|needs| !needs.iter().any(|id| waiting.contains(id))))
    {
        let at = left.remove(next);
        waiting.remove(&landings[at].id);
        ordered.push(at);
    }
    (ordered, left)
}

/// Why a landing has to wait before it is merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "for")]
pub enum LandingWait {
    /// A reviewer has to approve it.
    Review,
    /// Work that it needs has not landed.
    Needs {
        landing: LandingId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issue: Option<String>,
    },
    /// An agent mends a conflict in one of the same files.
    Fix {
        landing: LandingId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issue: Option<String>,
    },
    /// Its pull request is open.
    PullRequest { url: String },
    /// Its commits are in another clone.
    Elsewhere { host: String, clone: String },
    #[serde(other)]
    Other,
}

/// The landing whose fix has to land first: an agent mends a conflict in one of these files. Work that merges waits only
/// while the agent is at work; work that conflicts itself waits until the fix has landed, so that one is mended at a time.
#[must_use]
pub fn waits_for_fix<'a>(
    landing: &Landing,
    files: &[String],
    merges: bool,
    bounced: impl IntoIterator<Item = (&'a Landing, bool)>,
) -> Option<LandingId> {
    let overlaps = |bounce: &Bounce| {
        bounce.reason == BounceReason::Conflict && bounce.files.iter().any(|file| files.contains(file))
    };
    let mut fixes = bounced
        .into_iter()
        .filter(|(other, held)| other.id != landing.id && (*held || !merges) && other.bounce().is_some_and(overlaps));
    fixes.next().map(|(other, _)| other.id.clone())
}

/// Work that landed and was taken back, each with the landing that took it back. What was landed again after that is not there.
#[must_use]
pub fn taken_back<'l>(landings: impl IntoIterator<Item = &'l Landing>) -> Vec<(&'l Landing, &'l Landing)> {
    let known: BTreeMap<&LandingId, &Landing> = landings.into_iter().map(|landing| (&landing.id, landing)).collect();
    let after = |landing: &&'l Landing| known.get(landing.reverted_by.as_ref()?).copied();
    let works = known.values().copied().filter(|landing| landing.reverts.is_none());
    let found = works.filter_map(|work| {
        // A landing takes the work back, the next one takes that back, and so on.
        let reverts: Vec<&Landing> = std::iter::successors(after(&work), after).take(known.len()).collect();
        let last = reverts.last().filter(|_| reverts.len() % 2 == 1)?;
        Some((work, *last))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_and_landed_again_is_in_the_target() {
        let by = |id: &str, reverts: Option<&str>, reverted_by: Option<&str>| Landing {
            reverts: reverts.map(LandingId::known),
            reverted_by: reverted_by.map(LandingId::known),
            ..landing(id, 0, 1)
        };
        let found = |landings: &[Landing]| -> Vec<String> {
            taken_back(landings).iter().map(|(work, by)| format!("{} by {}", work.id, by.id)).collect()
        };
        let work = by("ln_a", None, Some("ln_b"));
        assert_eq!(found(&[work.clone(), by("ln_b", Some("ln_a"), None)]), ["ln_a by ln_b"]);
        let again = [work.clone(), by("ln_b", Some("ln_a"), Some("ln_c")), by("ln_c", Some("ln_b"), None)];
        assert_eq!(found(&again), Vec::<String>::new());
        // A circle, which no toft writes, ends.
        assert!(found(&[work, by("ln_b", Some("ln_a"), Some("ln_a"))]).len() < 2);
    }

    pub(crate) fn landing(id: &str, priority: u8, created: i64) -> Landing {
        Landing {
            id: LandingId::known(id),
            repository: RepositoryId::known("rp_1"),
            title: id.into(),
            task: None,
            workflow: None,
            issue: None,
            author: "a".into(),
            offer: LandingOffer { tip: "1".into(), ..LandingOffer::default() },
            priority,
            state: LandingState::Queued,
            approval: None,
            review_task: None,
            pull_request: None,
            reverts: None,
            reverted_by: None,
            bounces: Vec::new(),
            landed: None,
            created: Timestamp(created),
            updated: Timestamp(created),
        }
    }

    fn ids(landings: &[Landing], at: &[usize]) -> Vec<String> {
        at.iter().map(|at| landings[*at].id.to_string()).collect()
    }

    #[test]
    fn what_was_returned_withdrawn_or_finished_again_is_not_what_it_was() {
        let known = landing("ln_a", 0, 1);
        assert!(known.is_still(&known));
        for state in [LandingState::Bounced, LandingState::Landed, LandingState::Withdrawn] {
            assert!(!Landing { state, ..known.clone() }.is_still(&known));
        }
        let again = LandingOffer { tip: "2".into(), ..known.offer.clone() };
        assert!(!Landing { offer: again, ..known.clone() }.is_still(&known));
        let review = LandingOffer { review: Reviewer::Human, ..known.offer.clone() };
        let known = Landing { offer: review, ..known };
        assert!(!known.is_still(&known), "nobody has approved it");
        assert!(!landing("ln_b", 0, 1).is_still(&landing("ln_a", 0, 1)));
    }

    #[test]
    fn what_is_needed_lands_first_then_priority_then_time() {
        let all = [landing("ln_c", 0, 3), landing("ln_b", 2, 2), landing("ln_a", 2, 1), landing("ln_d", 1, 4)];
        let needs = BTreeMap::from([(LandingId::known("ln_c"), vec![LandingId::known("ln_b")])]);
        let (ordered, left) = order(&all, &needs);
        assert_eq!(ids(&all, &ordered), ["ln_d", "ln_a", "ln_b", "ln_c"]);
        assert!(left.is_empty());
    }

    #[test]
    fn landings_that_need_each_other_wait_and_hold_up_nothing_else() {
        let all = [landing("ln_a", 0, 1), landing("ln_b", 0, 2), landing("ln_c", 0, 3)];
        let id = |text: &str| LandingId::known(text);
        let needs = BTreeMap::from([(id("ln_a"), vec![id("ln_b")]), (id("ln_b"), vec![id("ln_a")])]);
        let (ordered, left) = order(&all, &needs);
        assert_eq!((ids(&all, &ordered), ids(&all, &left)), (vec!["ln_c".into()], vec!["ln_a".into(), "ln_b".into()]));
    }

    #[test]
    fn one_conflict_in_a_file_is_mended_at_a_time() {
        let mut fixed = landing("ln_fix", 0, 1);
        fixed.state = LandingState::Bounced;
        fixed.bounces.push(Bounce {
            reason: BounceReason::Conflict,
            at: Timestamp(1),
            tip: "1".into(),
            target: "2".into(),
            message: String::new(),
            files: vec!["a".into()],
            against: Vec::new(),
        });
        let other = landing("ln_other", 0, 2);
        let waits =
            |files: &str, merges, held| waits_for_fix(&other, &[files.into()], merges, [(&fixed, held)]).is_some();
        assert!(waits("a", false, false) && waits("a", false, true) && waits("a", true, true));
        assert!(!waits("a", true, false), "nobody is at work on it, and its next attempt begins on top");
        assert!(!waits("b", false, true));
        assert!(waits_for_fix(&fixed, &["a".into()], false, [(&fixed, true)]).is_none());
    }

    #[test]
    fn one_failed_run_blames_nobody_and_an_approval_is_void_when_the_tip_moves() {
        let run = |passed| CheckRun { passed, at: Timestamp(0), ms: 1, message: String::new(), log: String::new() };
        let verdict = |runs: &[bool]| Verdict {
            key: String::new(),
            repository: RepositoryId::known("rp_1"),
            tree: "t".into(),
            runs: runs.iter().map(|passed| run(*passed)).collect(),
        };
        assert!(!verdict(&[false]).failed() && !verdict(&[false]).passed());
        assert!(verdict(&[false, false]).failed());
        let flaky = verdict(&[false, true]);
        assert!(flaky.passed() && flaky.is_flaky() && !flaky.failed());
        assert!(!verdict(&[true]).is_flaky());

        let mut waits = landing("ln_a", 0, 1);
        waits.offer.review = Reviewer::Human;
        assert!(waits.needs_review());
        waits.approval = Some(WorkApproval { by: "me".into(), tip: "1".into(), at: Timestamp(1) });
        assert!(!waits.needs_review());
        waits.offer.tip = "2".into();
        assert!(waits.needs_review());
    }
}
