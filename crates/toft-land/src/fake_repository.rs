//! A repository in a table, for unit tests: commits are names, a tree is the list of changes that it has.
//!
//! It knows what landing decisions depend on, and nothing else of git: two changes of one file conflict, and a change
//! that is in a tree already adds nothing.

use std::{cell::RefCell, collections::BTreeMap};

use toft_core::{
    id::{LandingId, RepositoryId},
    landing::{Bounce, BounceReason, Landing, LandingOffer, LandingState, WorkChanges},
    time::Timestamp,
    verbs::land::ListedLanding,
};
use toft_vcs::{
    RunError,
    landing::{CandidateCommit, Merged},
    workspace::WorkspaceError,
};

use crate::repository::{CandidateSpec, MergeRepository};

/// A change of one file: the file, and the commit that changed it.
type FileChange = (String, String);

pub(crate) struct FakeRepository {
    /// What each tip changes.
    work: BTreeMap<String, Vec<FileChange>>,
    /// What each commit of the target, and each candidate, has.
    trees: RefCell<BTreeMap<String, Vec<FileChange>>>,
    broken: Vec<String>,
}

impl FakeRepository {
    /// Work by file and tip, on an empty target called `base`.
    pub(crate) fn new(work: &[(&str, &str)]) -> Self {
        let mut tips: BTreeMap<String, Vec<FileChange>> = BTreeMap::new();
        for (file, tip) in work {
            tips.entry((*tip).to_owned()).or_default().push(((*file).to_owned(), (*tip).to_owned()));
        }
        let trees = RefCell::new(BTreeMap::from([("base".to_owned(), Vec::new())]));
        Self { work: tips, trees, broken: Vec::new() }
    }

    /// The target changed this file since all work began.
    pub(crate) fn with_base_change(self, file: &str) -> Self {
        self.trees.borrow_mut().entry("base".into()).or_default().push((file.into(), "base".into()));
        self
    }

    /// The target has this work already.
    pub(crate) fn with_merged(self, tip: &str) -> Self {
        self.trees.borrow_mut().entry("base".into()).or_default().extend(self.work[tip].clone());
        self
    }

    /// Git fails on this work.
    pub(crate) fn with_broken(mut self, tip: &str) -> Self {
        self.broken.push(tip.to_owned());
        self
    }

    pub(crate) fn base(&self) -> CandidateCommit {
        CandidateCommit { commit: "base".into(), tree: self.tree_of("base").expect("the base is in the table") }
    }

    pub(crate) fn files_changed_by(&self, tip: &str) -> Vec<&str> {
        self.work[tip].iter().map(|(file, _)| file.as_str()).collect()
    }

    /// Returns the changes of a commit of the target, or of a tip.
    fn changes_in(&self, commit: &str) -> Vec<FileChange> {
        self.trees.borrow().get(commit).or(self.work.get(commit)).expect("the commit is in the table").clone()
    }
}

/// Lists the files that two sides changed differently.
fn conflicting_files(ours: &[FileChange], theirs: &[FileChange]) -> Vec<String> {
    let differs = |(file, tip): &&FileChange| ours.iter().any(|(other, by)| other == file && by != tip);
    theirs.iter().filter(differs).map(|(file, _)| file.clone()).collect()
}

impl MergeRepository for FakeRepository {
    fn tree_of(&self, commit: &str) -> Result<String, WorkspaceError> {
        Ok(self.changes_in(commit).iter().map(|(file, tip)| format!("{file}@{tip} ")).collect())
    }

    fn build_candidate(&self, base: &str, tip: &str, _spec: &CandidateSpec) -> Result<Merged, WorkspaceError> {
        if self.broken.iter().any(|broken| broken == tip) {
            return Err(RunError::Failed {
                what: "git merge-tree".into(),
                code: 128,
                said: "fatal: bad object".into(),
            }
            .into());
        }
        let (mut merged, work) = (self.changes_in(base), self.changes_in(tip));
        let conflicts = conflicting_files(&merged, &work);
        if !conflicts.is_empty() {
            return Ok(Merged::Conflict(conflicts));
        }
        merged.extend(work.into_iter().filter(|change| !self.changes_in(base).contains(change)));
        let commit = format!("{base}+{tip}");
        self.trees.borrow_mut().insert(commit.clone(), merged);
        Ok(Merged::Clean(CandidateCommit { tree: self.tree_of(&commit)?, commit }))
    }

    fn conflicts_of(&self, pairs: &[(String, String)]) -> Result<Vec<Option<Vec<String>>>, WorkspaceError> {
        let conflicts = |(ours, theirs): &(String, String)| {
            let files = conflicting_files(&self.changes_in(ours), &self.changes_in(theirs));
            (!files.is_empty()).then_some(files)
        };
        Ok(pairs.iter().map(conflicts).collect())
    }

    fn work_changes(&self, _base: &str, tips: &[String]) -> Result<Vec<WorkChanges>, WorkspaceError> {
        let changes = |tip: &String| {
            let files = self.files_changed_by(tip).into_iter().map(str::to_owned).collect();
            WorkChanges { files, ..WorkChanges::default() }
        };
        Ok(tips.iter().map(changes).collect())
    }
}

/// Queued work for `main`, named by its tip.
pub(crate) fn landing(tip: &str) -> Landing {
    Landing {
        id: LandingId::known(format!("ln_{tip}")),
        repository: RepositoryId::known("rp_1"),
        title: tip.into(),
        task: None,
        workflow: None,
        issue: None,
        author: "agent".into(),
        offer: LandingOffer { target: "main".into(), tip: tip.into(), ..LandingOffer::default() },
        priority: 2,
        state: LandingState::Queued,
        approval: None,
        review_task: None,
        pull_request: None,
        reverts: None,
        reverted_by: None,
        bounces: Vec::new(),
        landed: None,
        created: Timestamp(1),
        updated: Timestamp(1),
    }
}

/// Work that was sent back for a conflict in these files.
pub(crate) fn bounced_landing(tip: &str, files: &[&str]) -> Landing {
    let bounce = Bounce {
        reason: BounceReason::Conflict,
        at: Timestamp(2),
        tip: tip.into(),
        target: "base".into(),
        message: String::new(),
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        against: Vec::new(),
    };
    Landing { state: LandingState::Bounced, bounces: vec![bounce], ..landing(tip) }
}

/// A row of the queue that waits for nothing.
pub(crate) fn listed(landing: Landing) -> ListedLanding {
    ListedLanding { landing, waits: None, mending: false, held: false, elsewhere: false }
}
